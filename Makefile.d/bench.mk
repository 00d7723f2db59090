# The benchmark: podd against the raw CRI calls, and against upstream's kubelet
# with KUBELET=/path/to/kubelet (the one that make parity built, where there is
# one). BENCH takes further flags: make bench BENCH=--quick
#   make bench BENCH='-only "bound pod,deployment,at rest in a cluster"'    as the node of a cluster alone
#   make bench BENCH='--page docs/performance.md'    writes the table into that page, between its two lines that say "make bench"

KUBELET ?= $(lastword $(sort $(filter-out %.new,$(wildcard $(HOME)/.cache/podd/kubelet-v*))))
# Built by make parity, too: without it the kubelet's pods have no ConfigMaps, and its column none of their figures.
APISERVER ?= $(lastword $(sort $(filter-out %.new,$(wildcard $(HOME)/.cache/podd/apiserver-v*))))
# Built by make cluster: with them there are rows of podd, and of the kubelet, as the node of a whole cluster.
CONTROLLERMANAGER ?= $(lastword $(sort $(filter-out %.new,$(wildcard $(HOME)/.cache/podd/controllermanager-v*))))
SCHEDULER ?= $(lastword $(sort $(filter-out %.new,$(wildcard $(HOME)/.cache/podd/scheduler-v*))))

# What five hundred probes a second cost, on the runtime of the unit tests: real
# containers would take the processor that is measured.
bench_probes = echo "five hundred probes a second"; \
	PODD_BENCH=1 $(GO) test -count=1 -v -run TestAProbeCostsAQuarterMoreThanABareRequestAtMost ./cmd/podd >build/bench-probes.txt 2>&1 || status=1; \
	grep -e "of a core" -e "^--- " build/bench-probes.txt || cat build/bench-probes.txt

# What the worst manifests cost, in the same room: 10 MiB each.
bench_inputs = echo "the worst manifests of 10 MiB"; \
	PODD_BENCH=1 $(GO) test -count=1 -v -run TestNoInputCostsMoreThan300MiB ./cmd/podd >build/bench-inputs.txt 2>&1 || status=1; \
	grep -e "of a processor" -e "want" -e "^--- " build/bench-inputs.txt || cat build/bench-inputs.txt

.PHONY: bench
bench: build runtime ## measure podd against the raw CRI calls and the kubelet (KUBELET=path, APISERVER=path, BENCH=--quick is short)
	@$(call need,bench); $(need_pods)
	@CGO_ENABLED=0 $(GO) build -o build/podd-bench ./cmd/podd-bench
	@status=0; $(if $(findstring -only,$(BENCH)),,$(bench_probes); $(bench_inputs);) \
	build/podd-bench -kubelet '$(KUBELET)' -apiserver '$(APISERVER)' -controller-manager '$(CONTROLLERMANAGER)' -scheduler '$(SCHEDULER)' -report build/bench $(BENCH) || status=$$?; \
	exit $$status
