# Faults on a node of the test's own (test/chaos). A failure prints how to replay it.
#   make chaos SEED=7 FAULTS=300     a longer run of a seed of one's own
#   make chaos CLUSTER=1             the node is one of a cluster, whose apiserver and etcd faults strike, too
#   make chaos STORM=200             200 pods with Secrets come and go for FOR=5m, podd is killed KILLS=20 times

.PHONY: chaos
chaos: build runtime ## let faults strike podd while pods come and go (root; SEED=n, FAULTS=40, CLUSTER=1; or STORM=200 for pods with Secrets)
	@$(call need,chaos); $(need_pods); need_deb e2fsprogs mkfs.ext4
	@CGO_ENABLED=0 $(GO) build -o build/podd-chaos ./test/chaos
	@$(call need,chaos); set -e; $(if $(CLUSTER),$(apiserver);) \
	exec build/podd-chaos $(if $(CLUSTER),-apiserver "$$apiserver") $(if $(SEED),-seed $(SEED)) $(if $(FAULTS),-faults $(FAULTS)) \
		$(if $(STORM),-storm $(STORM)) $(if $(FOR),-for $(FOR)) $(if $(KILLS),-kills $(KILLS))

# As many pods at once as a node may have (docs/manifests.md: 2,000 of a directory; a bridge has ports for 1,000):
#   make storm N=1000                they come at once and go at once, three times, podd and containerd are killed in between

.PHONY: storm
storm: build runtime ## let N pods come at once and go at once, three times (root; N=1000)
	@$(call need,storm); $(need_pods); need_deb e2fsprogs mkfs.ext4
	@CGO_ENABLED=0 $(GO) build -o build/podd-chaos ./test/chaos
	@exec build/podd-chaos -flood $(or $(N),1000)

# What strangers can do to podd's ports (test/attack): make test has each attack for some seconds.

.PHONY: attack
attack: build ## attack podd's ports, in a memory cgroup of 256 MiB, for a minute each (root)
	@PODD_TEST_BINARY=$(CURDIR)/build/podd PODD_ATTACK_FOR=1m $(GO) test -count=1 -timeout 30m -v ./test/attack
