# A cluster of two nodes that upstream's kubeadm makes, with podd in the kubelet's place.
#   make kubeadm                         init, join, a pod, its logs, an attached volume, reset
#   make certification                   upstream's [Conformance] tests in such a cluster
#   make certification FOCUS='\[sig-apps\].*\[Conformance\]' PROCS=2
# Upstream's programs and their images are made once, in some minutes, and kept in
# ~/.cache/podd. Nodes are namespaces of this machine, which stays as it is.

# Shell text that leaves in $$kubeadm the directory of kubeadm and what its cluster is made of,
# and in $$kubeadm_images what hack/build-kubeadm-images.sh prints.
define kubeadm_programs
sum=$$({ cat test/cluster/kubeadm/go.sum test/cluster/coredns/go.sum test/cluster/coredns/main.go; echo '$(parity_version)'; } | sha256sum | cut -c1-12); \
cache="$${XDG_CACHE_HOME:-$${HOME:+$$HOME/.cache}}"; \
kubeadm="$${cache:-$$PWD/build}/podd/kubeadm-$(PARITY_KUBELET)-$$sum"; \
mkdir -p "$$kubeadm"; \
for of in cmd/kubeadm cmd/kube-apiserver cmd/kube-controller-manager cmd/kube-scheduler cmd/kube-proxy etcd coredns; do \
	to="$$kubeadm/$${of##*/}"; in=test/cluster/kubeadm; from=k8s.io/kubernetes/$$of; \
	case $$of in etcd) from=go.etcd.io/etcd/server/v3 ;; coredns) in=test/cluster/coredns; from=. ;; esac; \
	if [ ! -x "$$to" ]; then \
		echo "building upstream's $${of##*/}, once, into $$to" >&2; \
		(cd $$in && CGO_ENABLED=0 $(GO) build -trimpath -o "$$to.$$$$" -ldflags '-s -w $(parity_version)' $$from); \
		mv "$$to.$$$$" "$$to"; \
	fi; \
done; \
kubeadm_images=$$(hack/build-kubeadm-images.sh "$$kubeadm" "$$kubeadm/kubeadm")
endef

# Upstream's external-attacher, which has a CSI driver attach volumes: $$attacher.
attacher = $(call upstream,attacher,test/cluster/attacher,github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher,,,v$(EXTERNAL_ATTACHER))

.PHONY: kubeadm
kubeadm: build runtime ## a cluster of two podds by upstream's kubeadm, in namespaces: init, join, a volume, reset (a test)
	@$(call need,$@); $(need_pods)
	@set -e; $(kubectl); $(kubeadm_programs); $(attacher); \
	(cd test/csidriver && CGO_ENABLED=0 $(GO) build -o ../../build/csidriver .); \
	PODD_TEST_KUBECTL="$$kubectl" PODD_TEST_KUBEADM="$$kubeadm/kubeadm" PODD_TEST_KUBEADM_IMAGES="$$kubeadm_images" \
	PODD_TEST_ATTACHER="$$attacher" PODD_TEST_CSIDRIVER=$(CURDIR)/build/csidriver \
		$(testsum) -- -count=1 -timeout 15m ./test/kubeadm

# FOCUS, SKIP and PROCS have defaults for make conformance, which are not those of this target.
certification_focus = $(if $(filter command environment,$(word 1,$(origin FOCUS))),$(FOCUS),\[Conformance\])
certification_skip = $(if $(filter command environment,$(word 1,$(origin SKIP))),$(SKIP),\[Flaky\])

.PHONY: certification
certification: build runtime ## upstream's tests that certify a distribution, in kubeadm's cluster of two podds (FOCUS= SKIP= PROCS=)
	@$(call need,$@); $(need_pods)
	@set -e; $(kubectl); $(kubeadm_programs); \
	$(call of_suite,agnhost,k8s.io/kubernetes/test/images/agnhost); \
	$(call of_suite,ginkgo,github.com/onsi/ginkgo/v2/ginkgo); \
	$(call of_suite,e2e,k8s.io/kubernetes/test/e2e,test -c); \
	$(call of_suite,sampleapiserver,k8s.io/sample-apiserver); \
	images=$$(hack/build-suite-images.sh "$$agnhost"); \
	more=$$(hack/build-certification-images.sh "$$sampleapiserver" "$$kubeadm/etcd"); \
	PODD_TEST_BINARY=$(CURDIR)/build/podd PODD_TEST_KUBECTL="$$kubectl" PODD_TEST_KUBEADM="$$kubeadm/kubeadm" PODD_TEST_KUBEADM_IMAGES="$$kubeadm_images" \
	PODD_TEST_E2E="$$e2e" PODD_TEST_GINKGO="$$ginkgo" PODD_TEST_SUITE_IMAGES="$$images $$more" PODD_TEST_OUT=$(CURDIR)/build/certification \
	PODD_TEST_FOCUS='$(certification_focus)' PODD_TEST_SKIP='$(certification_skip)' PODD_TEST_PROCS='$(PROCS)' PODD_TEST_AT_LEAST=$(call at_least,462) \
		$(GO) test -count=1 -timeout 7h -v -run TestADistributionOfPoddsIsConformant ./test/kubeadm
