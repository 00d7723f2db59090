#!/bin/sh
# Builds podd's own images as OCI archives into build/images (or $1): pause (the
# sandbox image), web (the server of a first pod) and busybox (tests). A stamp
# over the sources makes a second run a no-op; FORCE=1 builds regardless.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repo=$(dirname "$here")
out=${1:-$repo/build/images}
work=$out.work
go=${GO:-go}

say() { printf '%s\n' "$*" >&2; }
die() { say "make runtime: $*"; exit 1; }
# shellcheck source=hack/need.sh
. "$here/need.sh"
need_go
need_deb gcc gcc libc6-dev /usr/include/stdlib.h binutils readelf
# shellcheck source=hack/cross.sh
. "$here/cross.sh"
need_cross

# is_static FILE: it asks for no dynamic loader.
is_static() { [ -x "$1" ] && ! LC_ALL=C readelf -lW "$1" | grep -q INTERP; }

# The busybox of the image: the machine's own where that is static, else the one
# of Debian's busybox-static, unpacked here. It is not installed: its package and
# the dynamic busybox, which an initramfs may want, exclude one another.
find_busybox() {
	for b in /bin/busybox /usr/bin/busybox "$work/deb/bin/busybox" "$work/deb/usr/bin/busybox"; do
		if is_static "$b"; then
			busybox=$b
			return 0
		fi
	done
	return 1
}
fetch_busybox() {
	command -v apt-get >/dev/null 2>&1 || die "no static busybox here; put one at /bin/busybox"
	rm -rf "$work/deb"
	mkdir -p "$work/deb"
	chmod 755 "$work" "$work/deb"
	(cd "$work/deb" && { apt-get download -qq busybox-static 2>/dev/null ||
		{ apt-get update -qq && apt-get download -qq busybox-static; }; } && dpkg-deb -x busybox-static_*.deb .) ||
		die "apt-get download busybox-static failed"
}
# The image of busybox has a link for each program that busybox names when it is run.
images="pause web busybox" busybox=
if [ "$arch" = "$("$go" env GOHOSTARCH)" ]; then
	find_busybox || { fetch_busybox && find_busybox; } || die "no static busybox in Debian's busybox-static"
else
	images="pause web"
fi

stamp() {
	{
		"$go" env GOVERSION GOARCH
		"$CC" -dumpfullversion
		cat "$here"/images/*/*.[cg]* "$here"/mkimages/*.go "$here/build-images.sh" ${busybox:+"$busybox"}
	} | sha256sum | cut -d' ' -f1
}
complete() {
	for i in $images; do [ -s "$out/$i.tar" ] || return 1; done
	[ "$(cat "$out/.stamp" 2>/dev/null)" = "$(stamp)" ]
}
if [ -z "${FORCE:-}" ] && complete; then
	exit 0
fi
mkdir -p "$out" "$work"
rm -f "$out/.stamp"
begin=$(date +%s%N)
"$CC" -Os -Wall -Wextra -Werror -static -s -Wl,--build-id=none -o "$work/pause" "$here/images/pause/pause.c"
(cd "$repo" && CGO_ENABLED=0 "$go" build -trimpath -buildvcs=false -ldflags '-s -w -buildid=' -o "$work/web" ./hack/images/web)
(cd "$repo" && GOARCH=$("$go" env GOHOSTARCH) CGO_ENABLED=0 "$go" run ./hack/mkimages -arch "$arch" -pause "$work/pause" -web "$work/web" -busybox "$busybox" -out "$out")
ms=$((($(date +%s%N) - begin) / 1000000))
for i in $images; do
	printf '  image localhost/podd/%-20s %6.1f MB\n' "$i:1" "$(stat -c %s "$out/$i.tar" | awk '{print $1 / 1e6}')" >&2
done
printf '  images built into %s in %d.%d s\n' "$out" $((ms / 1000)) $((ms % 1000 / 100)) >&2
stamp >"$out/.stamp.new" && mv -f "$out/.stamp.new" "$out/.stamp"
