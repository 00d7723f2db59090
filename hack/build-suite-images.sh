#!/bin/sh
# Builds the images of upstream's end-to-end tests as one archive, once for each state of
# what they are made of, and prints its path. $1 is upstream's agnhost, built.
#
# The tests' images come from registries; these have the same names, and the programs that
# the tests call: a small Debian in place of Alpine and busybox. What it has not in /bin is
# busybox's, as are /bin/top, which runs without a terminal, and /bin/sh, whose messages a test
# reads; but sh, as found by PATH, is bash: Debian's busybox drops variables whose names are no
# shell's, such as data-1, and a test reads those. It also lacks nmeter, which tests call for the
# time in milliseconds. The package is not busybox-static, whose sh prefers its own nc to the
# real one.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repo=$(dirname "$here")
go=${GO:-go}
agnhost=$1
suite=${PODD_DEBIAN_SUITE:-bookworm}
packages=bash,bind9-dnsutils,busybox,curl,iproute2,iputils-ping,netcat-openbsd,procps,socat,wget

die() { echo "make conformance: $*" >&2; exit 1; }
# shellcheck source=hack/need.sh
. "$here/need.sh"

hash=$({
	basename "$agnhost"
	cat "$here"/mkimages/*.go "$repo"/test/cluster/suiteimages/*.go "$repo"/internal/versions/versions.env "$here"/images/nnp/*.go "$here"/images/hostpathplugin/*.go "$here"/images/pause/pause.c "$0"
} | sha256sum | cut -c1-12)
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
cache=${cache:-$repo/build}/podd
out=$cache/suite-images-$hash.tar
if [ -s "$out" ]; then
	echo "$out"
	exit 0
fi

need_go
need_deb gcc gcc libc6-dev /usr/include/stdlib.h mmdebstrap mmdebstrap debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$cache"
work=$(mktemp -d "$cache/suite-images.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "building the images of upstream's tests, once, into $out" >&2
# shellcheck disable=SC2016 # $1 is for the hook
applets='chroot "$1" busybox --list | while read -r a; do [ -e "$1/bin/$a" ] || [ -L "$1/bin/$a" ] || ln -s busybox "$1/bin/$a"; done'
# shellcheck disable=SC2016
mmdebstrap --quiet --mode=root --variant=minbase --format=tar --skip=output/dev --include="$packages" \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--customize-hook="$applets" \
	--customize-hook='ln -sf busybox "$1/bin/sh"; ln -sf busybox "$1/bin/top"; ln -s /bin/bash "$1/usr/local/bin/sh"' \
	--customize-hook='printf "#!/bin/sh\nexec date -u +%%T.%%3N\n" >"$1/usr/local/bin/nmeter"; chmod 755 "$1/usr/local/bin/nmeter"' \
	--customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin "$1"/etc/hostname "$1"/etc/resolv.conf' \
	"$suite" "$work/base.tar" ${PODD_DEBIAN_MIRROR:-} >&2
(cd "$repo" && CGO_ENABLED=0 "$go" build -trimpath -buildvcs=false -ldflags '-s -w -buildid=' -o "$work/" ./hack/images/nnp ./hack/images/hostpathplugin)
gcc -Os -Wall -Wextra -Werror -static -s -Wl,--build-id=none -o "$work/pause" "$here/images/pause/pause.c"
(cd "$repo" && "$go" run ./hack/mkimages -pause "$work/pause" -suite-base "$work/base.tar" -agnhost "$agnhost" -nnp "$work/nnp" -hostpath "$work/hostpathplugin" -out "$work/images.tar")
mv "$work/images.tar" "$out"
for old in "$cache"/suite-images-????????????.tar; do
	[ "$old" = "$out" ] || rm -f "$old"
done
echo "$out"
