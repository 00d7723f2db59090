# Installing podd with its systemd units, and the test of it in virtual machines.
#   make install                     into / (PREFIX=/usr)
#   make install DESTDIR=/tmp/pkg    for a package
# Configuration that is there already is never overwritten; it is for root alone,
# since it may hold the credentials of a manifest URL.

PREFIX ?= /usr
DESTDIR ?=
BINDIR := $(PREFIX)/bin
PODD_LIBDIR := $(PREFIX)/libexec/podd
DOCDIR := $(PREFIX)/share/doc/podd
UNITDIR := /lib/systemd/system
INSTALLED_UNITS := podd.service podd-runtime.service
INSTALLED_DROPINS := podd.slice.d podd-.slice.d

.PHONY: install
install: build runtime ## install podd, its runtime and its systemd units (PREFIX=/usr, DESTDIR=)
	@[ -n "$(DESTDIR)" ] || { $(call need,install); need_deb nftables nft iproute2 ip mount mount; }
	@$(MAKE) -s install-files
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]; then \
		systemctl daemon-reload && \
		echo "installed; start it now and at every boot with: systemctl enable --now podd-runtime podd"; \
	fi

# What is installed: podd, its runtime and its images may be those of another processor.
PODD ?= build/podd
RUNTIME ?= build/runtime/bin
IMAGES_BUILT ?= build/images
.PHONY: install-files
install-files:
	@install -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(PODD_LIBDIR)" "$(DESTDIR)$(UNITDIR)" \
		"$(DESTDIR)/etc/podd" "$(DESTDIR)/var/lib/podd" "$(DESTDIR)/var/lib/podd/images"
	@install -d -m 0700 "$(DESTDIR)/etc/podd/manifests" # Secrets will lie there too
	@install -m 0755 $(PODD) "$(DESTDIR)$(BINDIR)/podd"
	@install -m 0755 $(RUNTIME)/* systemd/stop-pods.sh "$(DESTDIR)$(PODD_LIBDIR)/"
	@rm -rf "$(DESTDIR)$(PREFIX)/lib/podd" # where an earlier installation had the runtime; what runs of it runs on
	@install -d "$(DESTDIR)$(DOCDIR)/docs/adr" "$(DESTDIR)$(DOCDIR)/examples"
	@install -m 0644 README.md CONTRIBUTING.md LICENSE "$(DESTDIR)$(DOCDIR)/"
	@install -m 0644 docs/*.md docs/bench.svg "$(DESTDIR)$(DOCDIR)/docs/"
	@install -m 0644 docs/adr/*.md "$(DESTDIR)$(DOCDIR)/docs/adr/"
	@install -m 0644 examples/*.yaml examples/README.md "$(DESTDIR)$(DOCDIR)/examples/"
	@install -m 0644 $(IMAGES_BUILT)/pause.tar $(IMAGES_BUILT)/web.tar "$(DESTDIR)/var/lib/podd/images/"
	@for unit in $(INSTALLED_UNITS); do \
		sed 's|/usr/bin/podd|$(BINDIR)/podd|; s|/usr/share/doc|$(PREFIX)/share/doc|' "systemd/units/$$unit" \
			>"$(DESTDIR)$(UNITDIR)/$$unit" || exit 1; \
		chmod 0644 "$(DESTDIR)$(UNITDIR)/$$unit"; \
	done
	@for dir in $(INSTALLED_DROPINS); do \
		install -D -m 0644 "systemd/units/$$dir/50-podd-shutdown.conf" "$(DESTDIR)$(UNITDIR)/$$dir/50-podd-shutdown.conf" || exit 1; \
	done
	@if [ -e "$(DESTDIR)/etc/podd/config.yaml" ]; then \
		echo "kept /etc/podd/config.yaml as it is"; \
	else \
		umask 077; \
		{ cat config/standalone.yaml; \
		  printf '\n%s\n%s\n' '# podd-runtime.service' 'containerRuntimeEndpoint: unix:///run/podd/containerd.sock'; \
		} >"$(DESTDIR)/etc/podd/config.yaml"; \
	fi

.PHONY: uninstall
uninstall: ## end all pods, remove podd and its units; configuration and data stay
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ] && [ -e "$(UNITDIR)/podd.service" ]; then \
		$(PODD_LIBDIR)/stop-pods.sh $(BINDIR)/podd $(PODD_LIBDIR) && \
		systemctl disable --now $(INSTALLED_UNITS); \
	fi
	@rm -f $(foreach unit,$(INSTALLED_UNITS),"$(DESTDIR)$(UNITDIR)/$(unit)") "$(DESTDIR)$(BINDIR)/podd"
	@rm -rf $(foreach dir,$(INSTALLED_DROPINS),"$(DESTDIR)$(UNITDIR)/$(dir)")
	@rm -rf "$(DESTDIR)$(PODD_LIBDIR)" "$(DESTDIR)$(PREFIX)/lib/podd" "$(DESTDIR)$(DOCDIR)" # the second had the runtime before
	@rm -f "$(DESTDIR)/etc/systemd/logind.conf.d/zz-podd.conf" # podd's own, for shutdownGracePeriod
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
	@echo "podd is removed. Its configuration, manifests, images and pods' logs are left."
	@mounted=$$(awk -v lib="$(DESTDIR)/var/lib/podd/" -v run="$(DESTDIR)/run/podd/" \
		'index($$5, lib) == 1 || index($$5, run) == 1 {print "  " $$5}' /proc/self/mountinfo); \
	if [ -n "$$mounted" ]; then \
		echo "Delete nothing of podd's directories: what is behind these mounts would be deleted too. Unmount them first:"; \
		echo "$$mounted"; \
	else \
		echo "To remove them too:"; \
		echo "  rm -rf --one-file-system /etc/podd /var/lib/podd /run/podd /var/log/pods /var/log/containers"; \
	fi

.PHONY: test-vm
test-vm: build runtime ## test podd under systemd in Debian 12 virtual machines, with cgroup v2 and v1 (the image is kept in ~/.cache/podd-vm)
	@$(call need,test-vm); $(need_vm)
	@PODD_TEST_VM=1 $(GO) test -count=1 -timeout 0 -parallel 3 -v ./test/vm

.PHONY: test-database
test-database: build runtime ## reboot a virtual machine with a database that is written to
	@$(call need,test-database); $(need_vm)
	@images=$$(hack/build-example-images.sh) && PODD_TEST_EXAMPLE_IMAGES="$$images" PODD_TEST_VM=database $(GO) test -count=1 -timeout 0 -v -run TestVMDatabase ./test/vm
