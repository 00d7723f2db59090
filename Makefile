# podd: "make" alone lists what there is. Each target installs what it needs on
# a bare Debian or Ubuntu, as root; nothing is downloaded but Debian packages
# and Go modules. Further targets are in Makefile.d/, one file a subject.

SHELL := /bin/sh
GO ?= go
export GO
# The version is told by the flags below; a tree of another owner, where git
# refuses to answer, builds too.
export GOFLAGS := $(filter-out -buildvcs=%,$(GOFLAGS)) -buildvcs=false
.DEFAULT_GOAL := help
# The targets below share build/ and a machine: one after the other.
.NOTPARALLEL:

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
# once has the compiler see the same packages for podd, vet, lint and most tests: each is
# compiled once. The race detector takes another compilation of everything.
once = CGO_ENABLED=0 GOFLAGS="$(GOFLAGS) -trimpath"
race = CGO_ENABLED=1 GOFLAGS="$(GOFLAGS) -trimpath"
# need NAME: the shell functions of hack/need.sh for a recipe.
need = go="$(GO)"; . hack/need.sh; die() { echo "make $(1): $$*" >&2; exit 1; }
# What tests with real pods call: both packet filters' tools, ip, mount, chattr; and a D-Bus daemon.
need_pods = need_deb nftables nft iptables iptables-save iproute2 ip mount mount e2fsprogs chattr dbus dbus-daemon

.PHONY: help
help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z0-9_-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build podd itself into build/podd
	@$(call need,build); need_go
	@$(once) $(GO) build -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o build/podd ./cmd/podd

.PHONY: runtime
runtime: ## build containerd, runc, the CNI plugins (build/runtime/bin) and podd's images (build/images)
	@hack/build-runtime.sh
	@hack/build-images.sh

.PHONY: run
run: build runtime ## run podd here, in the foreground, with a first pod (RUN="flags of podd run")
	@hack/run.sh

.PHONY: stop
stop: build ## end podd, its pods and its container runtime; data stays
	@build/podd runtime stop

# Builds the linter into build/staticcheck.
staticcheck = mkdir -p build && (cd tools && $(once) $(GO) build -o ../build/staticcheck honnef.co/go/tools/cmd/staticcheck)

.PHONY: check
check: ## format, vet and lint
	@echo "--- format, vet, lint"
	@$(call need,check); need_go; need_deb gcc gcc libc6-dev /usr/include/stdlib.h
	@bad=$$(find . -path ./build -prune -o -name '*.go' -exec "$$($(GO) env GOROOT)/bin/gofmt" -l {} +) && [ -z "$$bad" ] || { echo "not formatted (gofmt -w):" $$bad >&2; exit 1; }
	@$(once) $(GO) vet ./...
	@$(staticcheck)
	@$(once) build/staticcheck ./...

.PHONY: clean
clean: ## remove everything that was built
	@rm -rf build

-include Makefile.d/*.mk
