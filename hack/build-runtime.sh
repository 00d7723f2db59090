#!/bin/sh
# Builds the runtime bundle: containerd, its shim, ctr, crictl, runc and the CNI
# plugins, all from the Go modules pinned in runtime/go.mod (the shim with a main
# function of podd's, which says why), into build/runtime/bin (or $1). A stamp over everything that decides the result
# makes a second run a no-op; FORCE=1 builds regardless.
#
# The same sources, Go version and libseccomp give the same bytes: -trimpath,
# no VCS stamp, no build ID. Upstream's version variables are set from go.mod,
# because "go build" does not stamp them for a dependency's main package.
#
# GOARCH=arm64 builds for that processor on another one: runc with Debian's cross
# compiler and with the libseccomp of Debian's arm64.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repo=$(dirname "$here")
out=${1:-$repo/build/runtime/bin}
go=${GO:-go}

say() { printf '%s\n' "$*" >&2; }
die() { say "make runtime: $*"; exit 1; }

[ "$(uname -s)" = Linux ] || die "the bundle is built on Linux, this is $(uname -s)"
# shellcheck source=hack/need.sh
. "$here/need.sh"
need_go

# shellcheck source=hack/cross.sh
. "$here/cross.sh"

# What decides the result. libseccomp and gcc matter for runc alone, and dpkg
# answers for them in milliseconds; a machine without dpkg uses their versions.
stamp() {
	{
		"$go" env GOVERSION GOARCH
		cat "$repo/runtime/go.mod" "$repo/runtime/go.sum" "$repo"/runtime/*/*.go "$here/build-runtime.sh"
		cat /var/lib/dpkg/info/libseccomp-dev*.md5sums "$cross"/*.sum 2>/dev/null || true
	} | sha256sum | cut -d' ' -f1
}
binaries="containerd containerd-shim-runc-v2 ctr crictl runc bridge host-local loopback portmap firewall bandwidth"

complete() {
	for b in $binaries; do [ -x "$out/$b" ] || return 1; done
	[ "$(cat "$out/.stamp" 2>/dev/null)" = "$(stamp)" ]
}
if [ -z "${FORCE:-}" ] && complete; then
	exit 0
fi

need_deb gcc gcc libc6-dev /usr/include/stdlib.h pkg-config pkg-config libseccomp-dev /usr/include/seccomp.h
need_cross
mkdir -p "$out"
rm -f "$out/.stamp"

# version MODULE prints the version that go.mod pins, without the leading v.
version() {
	awk -v m="$1" '{ sub(/^require /, "") } $1 == m && $2 ~ /^v/ { sub(/^v/, "", $2); print $2; exit }' "$repo/runtime/go.mod"
}
containerd_version=$(version github.com/containerd/containerd/v2)
plugins_version=$(version github.com/containernetworking/plugins)
tools_version=$(version sigs.k8s.io/cri-tools)

total=$(echo "$binaries" | wc -w)
count=0
# build NAME PACKAGE CGO TAGS LDFLAGS
build() {
	count=$((count + 1))
	begin=$(date +%s%N)
	[ -t 2 ] && printf '  [%2d/%d] %-26s …' "$count" "$total" "$1" >&2
	(cd "$repo/runtime" && CGO_ENABLED=$3 GOFLAGS=-mod=readonly "$go" build -trimpath -buildvcs=false \
		-tags "$4" -ldflags "-s -w -buildid= $5" -o "$out/.$1.new" "$2") ||
		die "$1 did not build (above is what the compiler says)"
	mv -f "$out/.$1.new" "$out/$1"
	ms=$((($(date +%s%N) - begin) / 1000000))
	[ -t 2 ] && printf '\r' >&2
	printf '  [%2d/%d] %-26s %6.1f MB  %3d.%d s\n' "$count" "$total" "$1" \
		"$(stat -c %s "$out/$1" | awk '{print $1 / 1e6}')" $((ms / 1000)) $((ms % 1000 / 100)) >&2
}

say "building the container runtime bundle into $out (a few minutes the first time)"
ctd=github.com/containerd/containerd/v2
ctdv="-X $ctd/version.Version=$containerd_version -X $ctd/version.Revision=podd"
cni=github.com/containernetworking/plugins
cniv="-X $cni/pkg/utils/buildversion.BuildVersion=v$plugins_version"
# Without cgo, Go's own resolver is used anyway. netgo and osusergo would change nothing, but
# make the compiler build podd's dependencies a second time.
trim="no_btrfs no_zfs no_devmapper"

build containerd $ctd/cmd/containerd 0 "$trim" "$ctdv"
# As upstream builds it: a shim speaks ttrpc, and is in memory once for each pod.
build containerd-shim-runc-v2 ./containerd-shim-runc-v2 0 "$trim no_grpc" "$ctdv"
build ctr $ctd/cmd/ctr 0 "$trim" "$ctdv"
build crictl sigs.k8s.io/cri-tools/cmd/crictl 0 "" "-X sigs.k8s.io/cri-tools/pkg/version.Version=$tools_version"
# runc knows its own version; it needs C for nsenter and libseccomp, both static.
# The second tag is upstream's: no generator of manual pages. runc_nocriu would
# take checkpoints away, and saves next to nothing.
build runc github.com/opencontainers/runc 1 "seccomp urfave_cli_no_docs netgo osusergo" "-linkmode external -extldflags '-static -Wl,--build-id=none'"
build bridge $cni/plugins/main/bridge 0 "" "$cniv"
build host-local $cni/plugins/ipam/host-local 0 "" "$cniv"
build loopback $cni/plugins/main/loopback 0 "" "$cniv"
build portmap $cni/plugins/meta/portmap 0 "" "$cniv"
build firewall $cni/plugins/meta/firewall 0 "" "$cniv"
build bandwidth $cni/plugins/meta/bandwidth 0 "" "$cniv"

stamp >"$out/.stamp.new" && mv -f "$out/.stamp.new" "$out/.stamp"
