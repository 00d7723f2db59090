# The tests on the real runtime; make test runs them too. RUN='TestName' picks.

.PHONY: e2e
e2e: runtime ## run the real-runtime tests alone (root; RUN=pattern picks some)
	@$(call need,e2e); $(need_pods)
	@$(GO) test -count=1 -timeout 15m ./test/e2e/... $(if $(RUN),-run '$(RUN)')
