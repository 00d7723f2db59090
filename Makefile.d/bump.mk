# The releases that podd is made of and tested with (internal/versions/versions.env).

.PHONY: bump
bump: ## write the releases of internal/versions/versions.env into every go.mod and page
	@$(call need,bump); need_go
	@$(GO) run ./hack/bump

.PHONY: bump-check
bump-check: ## say which of these releases have a newer one
	@$(call need,bump-check); need_go
	@$(GO) run ./hack/bump -newer
