# The tests. make test is what one waits for: each test that needs nothing but this machine,
# once. make test-all adds what test/later.txt lists (short runs of chaos, and what takes
# programs of upstream's, which are built once, in some minutes, and kept in ~/.cache/podd),
# virtual machines, and a cluster.
#   make test                        format, vet, lint; unit tests; podd on a real runtime
#   make test-all                    everything
#   make test-more                   what test-all adds to test; SKIP_VM=1 without virtual machines
#   make soak ROUNDS=10              the tests of the real runtime and of the agent, again and again, beside a load
#
# Tests that change the machine (network, cgroups, mounts) run one package at a time, beside
# those that use little of it but its processors. A stage that fails does not keep the next
# from running: the counts, and the file FAILED for what is not even a count, decide at the
# end. A test that is skipped has to be in SKIPS, with its reason.
#
# The timeouts are for what hangs: each is about three times what two processors need, and
# whichever expires is heard of within the 90 minutes that CI has. Virtual machines are given
# up by their own measure, their boots (test/vm): their timeout is what is left of these
# minutes. Where a test runs podd itself, it runs the one that make build has just made.

TOTAL := build/test-total.json
FAILED := build/test-failed
SKIPS := $(CURDIR)/test/skips.txt
testsum = PODD_TEST_BINARY=$(CURDIR)/build/podd $(GO) run ./hack/testsum -total $(TOTAL) -skips $(SKIPS)
# again makes a further target beside what uses the build: that is not made again.
again = $(MAKE) --no-print-directory -o build -o runtime
need_vm = need_deb qemu-system-x86 qemu-system-x86_64 mmdebstrap mmdebstrap e2fsprogs mkfs.ext4

# The tests that make test leaves to make test-all, as a pattern.
later = ^($$(sed -n 's/^\(Test[A-Za-z0-9]*\).*/\1/p' test/later.txt | paste -sd'|' -))$$
# Packages with unit tests, and those of them that start goroutines: the race detector
# watches these, but not what runs podd itself or measures what it costs: there it would
# watch the test alone.
units = $$($(GO) list ./... | grep -v -e /test/e2e -e /test/vm$$ -e /test/kubeadm$$ -e /podconfig/manifest/hostile$$)
racy = $$($(GO) list -f '{{.ImportPath}} {{.Dir}}' $(units) | while read -r pkg dir; do ! grep -qE '(^|[[:space:]])go (func|[a-z][A-Za-z.]*\()|\.Go\(' "$$dir"/*.go || echo "$$pkg"; done)
unwatched = ^(TestNoInputCostsMoreThan300MiB|TestThreeHundredPodsInADirectory|TestAProbeCostsAQuarterMoreThanABareRequestAtMost|TestAProbeOfEachKindCostsAboutWhatItsRequestCosts)$$

.PHONY: test
test: build runtime check ## what one waits for: check, unit tests, podd on a real runtime (root)
	@rm -f $(TOTAL) $(FAILED)
	@$(call need,test); $(need_pods)
	@[ "$$(id -u)" = 0 ] || echo "not root: what needs root is skipped, and this run will not count as passed" >&2
	@echo "--- unit tests, and beside them the tests on the real container runtime"; \
	{ $(once) $(testsum) -- -vet=off -count=1 -timeout 45m -skip "$(later)" ./test/e2e/... ./podconfig/manifest/hostile || touch $(FAILED); } & \
	{ $(once) $(testsum) -- -vet=off -timeout 40m -run "$(unwatched)" ./cmd/podd ./prober || touch $(FAILED); } & \
	racy="$(racy)"; \
	$(once) $(testsum) -- -vet=off -timeout 40m -skip "$(later)|$(unwatched)" $$(printf '%s\n' $(units) | grep -vxF "$$racy") || touch $(FAILED); \
	$(race) $(testsum) -- -vet=off -race -timeout 40m -skip "$(later)|$(unwatched)" $$racy || touch $(FAILED); \
	wait
	@$(testsum) -sum && [ ! -e $(FAILED) ]

.PHONY: test-all
test-all: ## everything: make test, then virtual machines, a cluster, and upstream's programs
	@status=0; $(MAKE) --no-print-directory test || status=1; $(again) test-more AFTER=test || status=1; exit $$status

# The programs of upstream's are made beside the virtual machines, by what these leave of the
# processors: a machine that has to wait fails what it times in its own seconds. For the same
# reason nothing else runs beside them: two processors are busy with three machines alone.
# The scenarios against the kubelet want the machine for themselves, too.
.PHONY: test-more
test-more: build runtime
	@rm -f $(FAILED); [ "$(AFTER)" = test ] || rm -f $(TOTAL) # the counts go on after make test
	@$(call need,$@); $(need_pods); [ -n "$(SKIP_VM)" ] || $(need_vm); \
	{ nice -n 19 $(again) upstream check-more || touch $(FAILED); } & \
	[ -n "$(SKIP_VM)" ] || { echo "--- tests in virtual machines, and beside them the build of upstream's programs"; \
		$(once) PODD_TEST_VM=1 $(testsum) -live -- -vet=off -count=1 -timeout 50m -parallel 3 ./test/vm || touch $(FAILED); }; \
	wait; \
	set -e; $(apiserver); $(kubectl); $(kubelet); $(metricsserver); $(prometheus); $(examples); set +e; \
	echo "--- tests of podd with programs of upstream's, and chaos"; \
	criu=$$(hack/criu.sh); \
	$(once) PATH="$${criu:+$$criu:}$$PATH" PODD_TEST_APISERVER="$$apiserver" PODD_TEST_KUBECTL="$$kubectl" PODD_TEST_KUBELET="$$kubelet" PODD_TEST_METRICSSERVER="$$metricsserver" PODD_TEST_PROMETHEUS="$$prometheus" PODD_TEST_EXAMPLE_IMAGES="$$examples" \
		$(testsum) -- -vet=off -count=1 -timeout 45m -run "$(later)" ./test/e2e ./test/chaos || touch $(FAILED); \
	echo "--- a cluster by upstream's kubeadm"; \
	$(again) kubeadm || touch $(FAILED); \
	echo "--- tests against upstream's kubelet"; \
	$(again) parity-ci || touch $(FAILED)
	@$(testsum) -sum && [ ! -e $(FAILED) ]

.PHONY: upstream
upstream: ## the programs of upstream's that make test-all needs, into ~/.cache/podd
	@set -e; $(apiserver); $(kubectl); $(kubelet); $(metricsserver); $(prometheus); $(examples); $(kubeadm_programs); $(attacher)

# The modules of tests link upstream's: their vet and lint compile half of Kubernetes.
.PHONY: check-more
check-more: ## vet and lint of the modules of tests
	@$(staticcheck)
	@for dir in test/parity test/csidriver test/dradriver; do (cd $$dir && $(once) $(GO) vet ./...) || exit 1; done
	@cd test/parity && $(once) ../../build/staticcheck ./...

# A test that fails now and then fails for somebody: before an issue is closed, what it
# touched passes ROUNDS times beside processes that want both processors for themselves.
ROUNDS ?= 10

.PHONY: soak
soak: build runtime ## the tests of the real runtime and of the agent, ROUNDS times beside a load (root; RUN=pattern picks some)
	@rm -f $(TOTAL) $(FAILED)
	@$(call need,$@); $(need_pods); \
	for _ in 1 2; do (while :; do :; done) & load="$$load $$!"; done; trap "kill $$load" EXIT; trap 'exit 1' INT TERM; \
	for round in $$(seq $(ROUNDS)); do \
		echo "--- round $$round of $(ROUNDS)"; \
		$(once) $(testsum) -- -vet=off -count=1 -timeout 90m -skip "$(later)" $(if $(RUN),-run '$(RUN)') ./test/e2e || touch $(FAILED); \
		$(race) $(testsum) -- -vet=off -race -count=1 -timeout 40m $(if $(RUN),-run '$(RUN)') ./agent/... || touch $(FAILED); \
	done
	@$(testsum) -sum && [ ! -e $(FAILED) ]
