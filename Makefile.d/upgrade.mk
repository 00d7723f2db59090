# An upgrade with running pods, of a node by itself and of one in kubeadm's cluster, from what an
# earlier commit builds, which is kept in ~/.cache/podd.
#   make upgrade FROM=3e2131e        from another commit than the last of Kubernetes 1.36

FROM ?= e7562763

.PHONY: upgrade
upgrade: build runtime ## upgrade a node with running pods from the podd of an earlier commit (root; FROM=commit)
	@$(call need,$@); $(need_pods); set -e; $(apiserver); $(kubectl); $(kubeadm_programs); \
	earlier=$$(hack/build-earlier.sh "$(FROM)"); \
	export PODD_TEST_EARLIER="$$earlier" PODD_TEST_APISERVER="$$apiserver" PODD_TEST_BINARY=$(CURDIR)/build/podd PODD_TEST_KUBECTL="$$kubectl" \
		PODD_TEST_KUBEADM="$$kubeadm/kubeadm" PODD_TEST_KUBEADM_IMAGES="$$kubeadm_images"; \
	$(GO) test -count=1 -timeout 20m -v -run '^TestAnUpgradeOfPoddRestartsNoContainer$$' ./test/e2e; \
	$(GO) test -count=1 -timeout 20m -v -run '^TestNodesOfTwoReleasesOfPoddAreOneCluster$$' ./test/kubeadm
