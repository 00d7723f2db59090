# An upgrade with running pods, from what an earlier commit builds, which is kept in ~/.cache/podd.
#   make upgrade FROM=3e2131e        from another commit than the last of Kubernetes 1.36

FROM ?= e7562763

.PHONY: upgrade
upgrade: build runtime ## upgrade a node with running pods from the podd of an earlier commit (root; FROM=commit)
	@$(call need,$@); $(need_pods); set -e; $(apiserver); \
	earlier=$$(hack/build-earlier.sh "$(FROM)"); \
	PODD_TEST_EARLIER="$$earlier" PODD_TEST_APISERVER="$$apiserver" PODD_TEST_BINARY=$(CURDIR)/build/podd \
	$(GO) test -count=1 -timeout 20m -v -run '^TestAnUpgradeOfPoddRestartsNoContainer$$' ./test/e2e
