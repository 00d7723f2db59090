# The benchmark: podd against the raw CRI calls, and against upstream's kubelet
# with KUBELET=/path/to/kubelet. BENCH takes further flags: make bench BENCH=--quick

.PHONY: bench
bench: build runtime ## measure podd against the raw CRI calls (KUBELET=path adds upstream's kubelet, BENCH=--quick is short)
	@$(call need,bench); $(need_pods)
	@$(GO) build -o build/podd-bench ./cmd/podd-bench
	@build/podd-bench $(BENCH)
