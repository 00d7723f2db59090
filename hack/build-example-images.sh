#!/bin/sh
# Builds the images that examples/ names and podd does not bring, out of Debian's packages,
# once for each state of what they are made of, and prints their directory: postgres.tar,
# nginx.tar, prometheus.tar and node-exporter.tar. Nothing is installed. PODD_DEBIAN_SUITE
# names another Debian than 12.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repo=$(dirname "$here")
go=${GO:-go}
suite=${PODD_DEBIAN_SUITE:-bookworm}
packages=busybox-static,nginx,postgresql,prometheus,prometheus-node-exporter

die() { echo "make example-images: $*" >&2; exit 1; }
# shellcheck source=hack/need.sh
. "$here/need.sh"

hash=$({
	echo "$suite"
	cat "$here"/mkimages/*.go "$0"
} | sha256sum | cut -c1-12)
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
cache=${cache:-$repo/build}/podd
out=$cache/example-images-$hash
if [ -d "$out" ]; then
	echo "$out"
	exit 0
fi

[ "$(id -u)" = 0 ] || die "unpacks packages with their owners, which takes root: sudo make example-images"
need_go
need_deb mmdebstrap mmdebstrap debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$cache"
work=$(mktemp -d "$cache/example-images.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "making the images of the examples out of Debian's packages, once, into $out" >&2
mmdebstrap --quiet --mode=root --variant=extract --include="$packages" --aptopt='APT::Install-Recommends "false"' \
	"$suite" "$work/root" "$(debian_mirror "$suite")" >&2 || die "mmdebstrap failed"
(cd "$repo" && "$go" run ./hack/mkimages -debian "$work/root" -out "$work/images")
rm -rf "$cache"/example-images-????????????
mv "$work/images" "$out"
echo "$out"
