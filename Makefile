# podd: "make" alone lists what there is. Each target installs what it needs on
# a bare Debian or Ubuntu, as root; nothing is downloaded but Debian packages
# and Go modules. Further targets are in Makefile.d/, one file a subject.

SHELL := /bin/sh
GO ?= go
export GO
.DEFAULT_GOAL := help
# The targets below share build/ and a machine: one after the other.
.NOTPARALLEL:

PODD := build/podd

.PHONY: help
help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z0-9_-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build podd itself into build/podd
	@. hack/need.sh; die() { echo "make build: $$*" >&2; exit 1; }; need_go
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(PODD) ./cmd/podd

.PHONY: runtime
runtime: ## build containerd, runc, the CNI plugins (build/runtime/bin) and podd's images (build/images)
	@hack/build-runtime.sh
	@hack/build-images.sh

.PHONY: clean
clean: ## remove everything that was built
	@rm -rf build

-include Makefile.d/*.mk
