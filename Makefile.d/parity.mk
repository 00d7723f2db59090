# podd against upstream's kubelet, scenario by scenario (test/parity/README.md).
#   make parity                          all of them, with test/parity/RESULTS.md as the result
#   make parity SCENARIO='sidecar*'      some
#   make parity AGENT=podd               podd only, against the kubelet's last records
#   make parity V=1                      known differences too
#   make parity-ci                       the part that `make test-all` has
# The kubelet, and the apiserver that some scenarios need, are built once (3 to 4 minutes each) and kept
# in ~/.cache/podd.

include internal/versions/versions.env
PARITY_KUBELET := v$(KUBERNETES)
parity_version := -X k8s.io/component-base/version.gitVersion=$(PARITY_KUBELET) -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES)))

# $(call upstream,NAME,MODULE,PACKAGE,SOURCE,COMMAND,VERSION) builds one of upstream's programs from a module of its own, once
# for each state of its go.sum and SOURCE, and leaves its path in $NAME. COMMAND is go's: build, if it is not said;
# VERSION is the program's, if it is not Kubernetes'.
upstream = \
	sum=$$({ cat $2/go.sum $4; echo '$(parity_version)'; } | sha256sum | cut -c1-12); \
	cache="$${XDG_CACHE_HOME:-$${HOME:+$$HOME/.cache}}"; \
	$1="$${cache:-$$PWD/build}/podd/$1-$(or $6,$(PARITY_KUBELET))-$$sum"; \
	if [ ! -x "$$$1" ]; then \
		echo "building upstream's $1 $(or $6,$(PARITY_KUBELET)), once, into $$$1" >&2; \
		mkdir -p "$$(dirname "$$$1")"; \
		(cd $2 && CGO_ENABLED=0 $(GO) $(or $5,build) -trimpath -o "$$$1.$$$$" -ldflags '-s -w $(parity_version)' $3); \
		mv "$$$1.$$$$" "$$$1"; \
	fi

# A kube-apiserver with its etcd in one process, for the tests of a node of a cluster, too: $$apiserver.
apiserver = $(call upstream,apiserver,test/cluster/apiserver,.,test/cluster/apiserver/main.go)
# Upstream's kubectl, which these tests use as people do: $$kubectl.
kubectl = $(call upstream,kubectl,test/cluster/kubectl,k8s.io/kubernetes/cmd/kubectl,)

# Upstream's kubelet: $$kubelet.
kubelet = $(call upstream,kubelet,test/parity/kubelet,k8s.io/kubernetes/cmd/kubelet,)

# Builds what both targets need and leaves the kubelet's path in $kubelet.
define parity_prepare
set -e; \
$(kubelet); \
(cd test/parity && CGO_ENABLED=0 $(GO) build -o ../../build/parity-fixture ./fixture)
endef

.PHONY: parity
parity: build runtime ## compare podd with upstream's kubelet, in some 350 scenarios (SCENARIO=pattern, AGENT=podd|kubelet|none, V=1)
	@$(call need,parity); $(need_pods)
	@$(parity_prepare); \
	$(apiserver); \
	(cd test/parity && $(GO) build -o ../../build/podd-parity .); \
	exec build/podd-parity -kubelet "$$kubelet" -apiserver "$$apiserver" -fixture build/parity-fixture \
		$(if $(SCENARIO),-scenario '$(SCENARIO)',$(if $(AGENT),,-results test/parity/RESULTS.md)) \
		$(if $(AGENT),-agent '$(AGENT)') $(if $(V),-v)

# One package after the other: the scenarios want the machine.
.PHONY: parity-ci
parity-ci: build runtime ## podd against upstream's functions, and the scenarios of test/parity/ci.txt against its kubelet
	@$(call need,parity-ci); $(need_pods)
	@$(parity_prepare); \
	$(apiserver); \
	PODD_PARITY_KUBELET="$$kubelet" PODD_TEST_APISERVER="$$apiserver" $(testsum) -dir test/parity -- -count=1 -p 1 -timeout 30m ./...
