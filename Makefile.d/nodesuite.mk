# Upstream's own suite of a node, e2e_node, which starts podd itself, under the name kubelet.
#   make node-suite                      what is [NodeConformance], and not Serial, Slow, Flaky or Disruptive
#   make node-suite FOCUS='Summary API'  those whose names match
#   make node-suite PROCS=2
# It runs in namespaces of this machine, with an apiserver and an etcd of its own. What it is
# made of is built once, in some minutes, and kept in ~/.cache/podd. Results are in build/node-suite.

# What the suite calls without systemd.
need_node_suite = need_deb util-linux unshare procps pgrep

.PHONY: node-suite
node-suite: build runtime ## upstream's own tests of a node, e2e_node, against podd (FOCUS= SKIP= PROCS=)
	@$(call need,$@); $(need_pods); $(need_node_suite); \
	[ "$$(id -u)" = 0 ] || die "a node makes containers and networks, which takes root: sudo make $@"
	@set -e; \
	$(call of_suite,agnhost,k8s.io/kubernetes/test/images/agnhost); \
	$(call of_suite,ginkgo,github.com/onsi/ginkgo/v2/ginkgo); \
	$(call of_suite,e2enode,k8s.io/kubernetes/test/e2e_node,test -c -vet=off); \
	images=$$(hack/build-suite-images.sh "$$agnhost"); \
	PODD_TEST_BINARY=$(CURDIR)/build/podd PODD_TEST_E2ENODE="$$e2enode" PODD_TEST_GINKGO="$$ginkgo" PODD_TEST_SUITE_IMAGES="$$images" \
	PODD_TEST_OUT=$(CURDIR)/build/node-suite PODD_TEST_FOCUS='$(FOCUS)' PODD_TEST_SKIP='$(SKIP)' PODD_TEST_PROCS='$(PROCS)' PODD_TEST_AT_LEAST=$(call at_least,432) \
		$(GO) test -count=1 -timeout 7h -v -run TestPoddPassesUpstreamsSuiteOfANode ./test/kubeadm
