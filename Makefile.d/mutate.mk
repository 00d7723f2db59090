.PHONY: mutate
mutate: ## change the code line by line: would a test notice? (PACKAGES="agent/plan status" for some, LEAST=90, FLOOR=85)
	@$(call need,mutate); need_go
	@$(GO) run ./hack/mutate $(if $(LEAST),-least $(LEAST)) $(if $(FLOOR),-floor $(FLOOR)) $(PACKAGES)
