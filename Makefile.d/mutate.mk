.PHONY: mutate
mutate: ## change the code of the pure packages line by line: would a test notice? (PACKAGES="agent/plan status", LEAST=90)
	@$(call need,mutate); need_go
	@$(GO) run ./hack/mutate $(if $(LEAST),-least $(LEAST)) $(PACKAGES)
