# The tests on the real runtime, which make test and make test-all run too. RUN='TestName' picks;
# RACE=1 has podd built with the race detector, as before an issue is called done:
# it needs three times the processor, which make test has not to spare.

.PHONY: e2e
e2e: runtime ## run the real-runtime tests alone (root; RUN=pattern picks some, RACE=1 looks for data races in podd)
	@$(call need,e2e); $(need_pods)
	@set -e; $(apiserver); $(kubectl); $(kubelet); $(metricsserver); $(prometheus); $(examples); \
	PODD_TEST_APISERVER="$$apiserver" PODD_TEST_KUBECTL="$$kubectl" PODD_TEST_KUBELET="$$kubelet" PODD_TEST_METRICSSERVER="$$metricsserver" PODD_TEST_PROMETHEUS="$$prometheus" PODD_TEST_EXAMPLE_IMAGES="$$examples" \
	$(if $(RACE),PODD_E2E_RACE=1 )$(GO) test -count=1 -timeout 90m ./test/e2e/... $(if $(RUN),-run '$(RUN)')
