# Faults on a node of the test's own (test/chaos). A failure prints how to replay it.
#   make chaos SEED=7 FAULTS=300     a longer run of a seed of one's own

.PHONY: chaos
chaos: build runtime ## let faults strike podd while pods come and go (root; SEED=n, FAULTS=40)
	@$(call need,chaos); $(need_pods); need_deb e2fsprogs mkfs.ext4
	@CGO_ENABLED=0 $(GO) build -o build/podd-chaos ./test/chaos
	@exec build/podd-chaos $(if $(SEED),-seed $(SEED)) $(if $(FAULTS),-faults $(FAULTS))
