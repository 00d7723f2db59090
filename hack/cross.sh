# Sourced by the build scripts: what it takes to build for another processor than
# this machine's, which GOARCH names. Uses $go, $repo, die() and hack/need.sh.
#
# CC is the C compiler. $cross has the libseccomp of that processor.
arch=$("$go" env GOARCH)
cross=$repo/build/cross/$arch
CC=${CC:-gcc}
if [ "$arch" != "$("$go" env GOHOSTARCH)" ]; then
	[ "$arch" = arm64 ] || die "GOARCH=$arch: give amd64 or arm64"
	CC=aarch64-linux-gnu-gcc
fi
export CC

# need_cross brings the cross compiler, and libseccomp out of Debian's package for that
# processor, unpacked here: the machine's own architectures and sources of packages stay.
need_cross() {
	[ "$CC" = aarch64-linux-gnu-gcc ] || return 0
	need_deb gcc-aarch64-linux-gnu "$CC" libc6-dev-arm64-cross /usr/aarch64-linux-gnu/include/stdlib.h
	if [ ! -e "$cross/libseccomp.sum" ]; then
		suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
		uri=$(debian_mirror "$suite")
		rm -rf "$cross" && mkdir -p "$cross/apt/lists/partial" "$cross/apt/cache/archives/partial"
		chmod 755 "$repo/build" "$repo/build/cross" "$cross" 2>/dev/null || true
		: >"$cross/apt/status"
		echo "deb $uri $suite main" >"$cross/apt/sources.list"
		# A configuration of its own: this machine's apt knows nothing of it.
		cross_apt() {
			apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::Etc::SourceList="$cross/apt/sources.list" \
				-o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$cross/apt/lists" -o Dir::State::Status="$cross/apt/status" \
				-o Dir::Cache="$cross/apt/cache" -o APT::Sandbox::User=root "$@"
		}
		(cd "$cross" && cross_apt update && cross_apt download libseccomp-dev && dpkg-deb -x libseccomp-dev_*.deb .) >&2 ||
			die "cannot get libseccomp-dev of Debian's arm64"
		(cd "$cross" && sha256sum libseccomp-dev_*.deb >libseccomp.sum) && rm -rf "$cross/apt"
	fi
	export CGO_CFLAGS="-I$cross/usr/include" CGO_LDFLAGS="-L$cross/usr/lib/aarch64-linux-gnu"
	export PKG_CONFIG_LIBDIR="$cross/usr/lib/aarch64-linux-gnu/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$cross"
}
