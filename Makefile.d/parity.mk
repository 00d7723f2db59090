# podd against upstream's kubelet, scenario by scenario (test/parity/README.md).
#   make parity SCENARIO='sidecar*'      some of the scenarios
#   make parity AGENT=podd               podd only, against the kubelet's last records
#   make parity V=1                      known differences too
# The kubelet is built once (3 to 4 minutes) and kept in ~/.cache/podd.

PARITY_KUBELET := v1.36.3
parity_version := -X k8s.io/component-base/version.gitVersion=$(PARITY_KUBELET) -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36

.PHONY: parity
parity: build runtime ## compare podd with upstream's kubelet, in some 200 scenarios (SCENARIO=pattern, AGENT=podd|kubelet|none, V=1)
	@$(call need,parity); $(need_pods)
	@set -e; \
	cache="$${XDG_CACHE_HOME:-$${HOME:+$$HOME/.cache}}"; \
	sum=$$({ cat test/parity/kubelet/go.sum; echo '$(parity_version)'; } | sha256sum | cut -c1-12); \
	kubelet="$${cache:-$$PWD/build}/podd/kubelet-$(PARITY_KUBELET)-$$sum"; \
	if [ ! -x "$$kubelet" ]; then \
		echo "building upstream's kubelet $(PARITY_KUBELET), once, into $$kubelet" >&2; \
		mkdir -p "$$(dirname "$$kubelet")"; \
		(cd test/parity/kubelet && CGO_ENABLED=0 $(GO) build -trimpath -o "$$kubelet.new" \
			-ldflags '-s -w $(parity_version)' k8s.io/kubernetes/cmd/kubelet); \
		mv "$$kubelet.new" "$$kubelet"; \
	fi; \
	(cd test/parity && $(GO) vet ./... && CGO_ENABLED=0 $(GO) build -o ../../build/parity-fixture ./fixture && $(GO) build -o ../../build/podd-parity .); \
	exec build/podd-parity -kubelet "$$kubelet" -fixture build/parity-fixture \
		$(if $(SCENARIO),-scenario '$(SCENARIO)',$(if $(AGENT),,-results test/parity/RESULTS.md)) \
		$(if $(AGENT),-agent '$(AGENT)') $(if $(V),-v)
