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
# need NAME: the shell functions of hack/need.sh for a recipe.
need = go="$(GO)"; . hack/need.sh; die() { echo "make $(1): $$*" >&2; exit 1; }
# What tests with real pods call: both packet filters' tools, ip, mount, chattr.
need_pods = need_deb nftables nft iptables iptables-save iproute2 ip mount mount e2fsprogs chattr
need_vm = need_deb qemu-system-x86 qemu-system-x86_64 mmdebstrap mmdebstrap e2fsprogs mkfs.ext4

.PHONY: help
help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z0-9_-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build podd itself into build/podd
	@$(call need,build); need_go
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o build/podd ./cmd/podd

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

.PHONY: check
check: ## format, vet and lint
	@echo "--- format, vet, lint"
	@$(call need,check); need_go; need_deb gcc gcc libc6-dev /usr/include/stdlib.h
	@bad=$$(find . -path ./build -prune -o -name '*.go' -exec "$$($(GO) env GOROOT)/bin/gofmt" -l {} +) && [ -z "$$bad" ] || { echo "not formatted (gofmt -w):" $$bad >&2; exit 1; }
	@$(GO) vet ./...
	@cd test/parity && $(GO) vet ./...
	@cd test/csidriver && $(GO) vet ./...
	@cd test/dradriver && $(GO) vet ./...
	@mkdir -p build && (cd tools && $(GO) build -o ../build/staticcheck honnef.co/go/tools/cmd/staticcheck)
	@build/staticcheck ./...
	@cd test/parity && ../../build/staticcheck ./...

# Tests that change the machine (network, cgroups, mounts) run one package at a
# time, beside those that use little of it but its processors: first the unit tests,
# which have the race detector, then the virtual machines, which give way to others.
# The scenarios against the kubelet want the machine for themselves.
# A stage that fails does not keep the next from running: the counts, and the file
# FAILED for what is not even a count, decide at the end. What measures podd's own
# processor time runs without the race detector.
#
# The timeouts are for what hangs: each is about three times what two processors
# need, and whichever expires is heard of within the 90 minutes that CI has. Virtual
# machines are given up by their own measure, their boots (test/vm): their timeout is what
# is left of these minutes. Where a test runs podd itself, it runs the one that make build
# has just made.
TOTAL := build/test-total.json
FAILED := build/test-failed
testsum = PODD_TEST_BINARY=$(CURDIR)/build/podd $(GO) run ./hack/testsum -total $(TOTAL)
# again makes a further target beside what uses the build: that is not made again.
again = $(MAKE) --no-print-directory -o build -o runtime

.PHONY: test
test: build runtime check ## everything: check, unit tests with the race detector, real containers, virtual machines
	@rm -f $(TOTAL) $(FAILED)
	@$(call need,test); $(need_pods)
	@[ "$$(id -u)" = 0 ] || echo "not root: what needs root is skipped, and this run will not count as passed" >&2
	@$(call need,test); [ -n "$(SKIP_VM)" ] || $(need_vm); \
	set -e; $(apiserver); $(kubectl); $(kubelet); $(metricsserver); $(prometheus); set +e; \
	echo "--- tests on the real container runtime, and beside them those with the race detector"; \
	{ PODD_TEST_APISERVER="$$apiserver" PODD_TEST_KUBECTL="$$kubectl" PODD_TEST_KUBELET="$$kubelet" PODD_TEST_METRICSSERVER="$$metricsserver" PODD_TEST_PROMETHEUS="$$prometheus" \
		$(testsum) -- -count=1 -timeout 45m ./test/e2e/... ./podconfig/manifest/hostile || touch $(FAILED); } & \
	CGO_ENABLED=1 $(testsum) -- -race -timeout 40m $$($(GO) list ./... | grep -v -e /test/e2e -e /test/vm$$ -e /test/kubeadm$$) || touch $(FAILED); \
	if [ -z "$(SKIP_VM)" ]; then \
		echo "--- tests in virtual machines"; \
		nice -n 5 env PODD_TEST_VM=1 $(testsum) -live -- -count=1 -timeout 65m -parallel 3 ./test/vm || touch $(FAILED); \
	fi; \
	wait
	@echo "--- tests against upstream's kubelet"
	@$(again) parity-ci || touch $(FAILED)
	@echo "--- a cluster by upstream's kubeadm"
	@$(again) kubeadm || touch $(FAILED)
	@$(testsum) -sum && [ ! -e $(FAILED) ]

.PHONY: clean
clean: ## remove everything that was built
	@rm -rf build

-include Makefile.d/*.mk
