# Packages of podd for people's machines.
#   make package                       .deb, .rpm, tarball and bill of materials, for both processors
#   make package ARCHES=amd64          for one
#   make package KEY=key.asc           signs the sums with that private OpenPGP key
#   make package-repo KEY=key.asc      an apt repository of them, below build/packages/apt
#   make release                       all of that, from a tag

ARCHES ?= amd64 arm64
KEY ?=
MAINTAINER ?= podd developers <podd@localhost>
# sign FILE SIGNATURE…: with gpg in a home of its own, which goes.
sign = gnupg=$$(mktemp -d) && chmod 700 "$$gnupg" && trap 'gpgconf --homedir "$$gnupg" --kill all 2>/dev/null; rm -rf "$$gnupg"' EXIT && \
	gpg --homedir "$$gnupg" --batch -q --import "$(KEY)" && gpg() { command gpg --homedir "$$gnupg" --batch -q --yes "$$@"; }

.PHONY: package
package: ## .deb, .rpm and tarball for amd64 and arm64, with sums, into build/packages (ARCHES= KEY= VERSION=)
	@$(call need,package); rm -rf build/packages
	@for arch in $(ARCHES); do VERSION="$(VERSION)" MAINTAINER="$(MAINTAINER)" hack/package.sh $$arch || exit 1; done
	@cd build/packages && sha256sum * >SHA256SUMS
	@[ -z "$(KEY)" ] || { $(call need,package); need_deb gnupg gpg; $(sign) && gpg --detach-sign --armor -o build/packages/SHA256SUMS.asc build/packages/SHA256SUMS; }
	@echo "packages are in build/packages$(if $(KEY),, (the sums are not signed: KEY=FILE names a private OpenPGP key))"

.PHONY: package-lint
package-lint: ## check build/packages with lintian and rpm
	@$(call need,package-lint); need_deb lintian lintian rpm rpm
	@for f in build/packages/*.deb; do echo "--- $$f"; lintian --allow-root --fail-on error,warning "$$f" || exit 1; done
	@for f in build/packages/*.rpm; do echo "--- $$f"; rpm -qp --scripts --requires "$$f" >/dev/null && rpm -K --nosignature "$$f" || exit 1; done

.PHONY: package-reproducible
package-reproducible: ## make the packages twice, the second time from another directory: equal to the byte?
	@$(MAKE) -s package
	@mkdir -p build/reproducible && cp build/packages/SHA256SUMS build/reproducible/first && rm -rf build/reproducible/tree && \
		git worktree prune && git worktree add -q --force --detach build/reproducible/tree HEAD && \
		{ $(MAKE) -s -C build/reproducible/tree package ARCHES="$(ARCHES)" VERSION="$(VERSION)" KEY=; failed=$$?; \
		cp build/reproducible/tree/build/packages/SHA256SUMS build/reproducible/second; \
		git worktree remove --force build/reproducible/tree; exit $$failed; }
	@diff build/reproducible/first build/reproducible/second && echo "the packages are equal to the byte"

.PHONY: test-packages
test-packages: build runtime ## install, upgrade, remove and purge the .deb in a Debian virtual machine
	@$(MAKE) -s package ARCHES=amd64
	@$(call need,test-packages); $(need_vm)
	@PODD_TEST_VM=packages $(GO) test -count=1 -timeout 0 -v -run TestVMPackages ./test/vm

.PHONY: package-repo
package-repo: ## an apt repository of build/packages, below build/packages/apt (KEY= signs it)
	@$(call need,package-repo); ls build/packages/*.deb >/dev/null 2>&1 || die "there are no packages: run make package first"; \
		need_deb apt-utils apt-ftparchive; [ -z "$(KEY)" ] || need_deb gnupg gpg; \
		rm -rf build/packages/apt && mkdir -p build/packages/apt/pool/main/p/podd && cp build/packages/*.deb build/packages/apt/pool/main/p/podd/ && cd build/packages/apt && \
		for arch in $(ARCHES); do \
			dir=dists/stable/main/binary-$$arch; mkdir -p $$dir; \
			apt-ftparchive --arch $$arch packages pool >$$dir/Packages && gzip -9nk $$dir/Packages || exit 1; \
		done && \
		apt-ftparchive -o APT::FTPArchive::Release::Suite=stable -o APT::FTPArchive::Release::Codename=stable -o APT::FTPArchive::Release::Components=main \
			-o "APT::FTPArchive::Release::Architectures=$(ARCHES)" release dists/stable >../Release && mv ../Release dists/stable/Release
	@[ -z "$(KEY)" ] || { $(sign) && cd build/packages/apt/dists/stable && gpg --detach-sign --armor -o Release.gpg Release && gpg --clearsign -o InRelease Release; }
	@echo "the repository is build/packages/apt$(if $(KEY),, (it is not signed: KEY=FILE names a private OpenPGP key))"

.PHONY: release
release: ## packages, signatures and repository, from a tag (KEY=)
	@$(call need,release); tag=$$(git describe --exact-match --tags --match 'v[0-9]*' 2>/dev/null) || die "HEAD has no tag such as v1.2.3"; \
		[ -z "$$(git status --porcelain)" ] || die "the tree has changes that are not committed"; \
		grep -q "^## $${tag#v}\b" CHANGELOG.md || die "CHANGELOG.md has no section of $${tag#v}"; \
		$(MAKE) -s package VERSION="$$tag" && $(MAKE) -s package-lint && $(MAKE) -s package-repo
