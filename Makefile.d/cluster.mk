# A whole cluster of one node on this machine, and upstream's end-to-end tests in it.
#   make cluster                         podd is the node; Ctrl-C ends it
#   make cluster NODE=kubelet            upstream's kubelet is
#   make conformance                     upstream's tests of a node, against podd
#   make conformance FOCUS='Probing'     those whose names match
#   make conformance PROCS=2 NODE=kubelet
# Upstream's programs are built once, in some minutes, and kept in ~/.cache/podd, as are the
# images of the tests. Results are in build/conformance.

# Where the user names tests (FOCUS=, SKIP=), one is enough; else $1 must run, which is how
# many there are at the pinned version of Kubernetes.
named = $(filter command environment,$(word 1,$(origin FOCUS)) $(word 1,$(origin SKIP)))
at_least = $(if $(named),1,$1)

NODE ?= podd
FOCUS ?= \[NodeConformance\]
SKIP ?= \[(Flaky|Disruptive|Slow|Serial)\]
PROCS ?= 6

# Shell text that leaves paths in $apiserver, $controllermanager and so on.
of_suite = $(call upstream,$1,test/cluster/suite,$2,,$3)
define cluster_prepare
set -e; $(need_pods); \
[ "$$(id -u)" = 0 ] || die "a node makes containers and networks, which takes root: sudo make $@"; \
case "$(NODE)" in podd | kubelet) ;; *) die "NODE is podd or kubelet, not $(NODE)" ;; esac; \
$(apiserver); $(kubectl); \
$(call of_suite,controllermanager,k8s.io/kubernetes/cmd/kube-controller-manager); \
$(call of_suite,scheduler,k8s.io/kubernetes/cmd/kube-scheduler); \
if [ "$(NODE)" = kubelet ]; then $(kubelet); fi; \
$(GO) build -o build/podd-cluster ./test/cluster/up; \
set -- -apiserver "$$apiserver" -controller-manager "$$controllermanager" -scheduler "$$scheduler" -kubectl "$$kubectl" $${kubelet:+-kubelet "$$kubelet"}
endef

.PHONY: cluster
cluster: build runtime ## a Kubernetes cluster here, with podd as its node, until Ctrl-C (NODE=kubelet: upstream's)
	@$(call need,$@); $(cluster_prepare); \
	exec build/podd-cluster "$$@"

.PHONY: conformance
conformance: build runtime ## upstream's end-to-end tests of a node against podd (FOCUS= SKIP= PROCS= NODE=kubelet)
	@$(call need,$@); $(cluster_prepare); \
	$(call of_suite,agnhost,k8s.io/kubernetes/test/images/agnhost); \
	$(call of_suite,ginkgo,github.com/onsi/ginkgo/v2/ginkgo); \
	$(call of_suite,e2e,k8s.io/kubernetes/test/e2e,test -c); \
	images=$$(hack/build-suite-images.sh "$$agnhost"); \
	exec build/podd-cluster "$$@" -suite-images "$$images" -ginkgo "$$ginkgo" -tests "$$e2e" -out build/conformance \
		-focus '$(FOCUS)' -skip '$(SKIP)' -procs '$(PROCS)' -at-least $(call at_least,242)
