#!/bin/sh
# Makes podd's packages for one processor into build/packages: .deb, .rpm, a tarball with its
# install.sh, and a bill of materials. $1 is amd64 or arm64; $VERSION the version, such as v1.2.3.
#
# The same tree makes the same bytes: every date is that of the commit ($SOURCE_DATE_EPOCH), files
# are in order, programs have no build ID.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repo=$(dirname "$here")
go=${GO:-go}
die() { echo "make package: $*" >&2; exit 1; }
say() { printf '%s\n' "$*" >&2; }
# shellcheck source=hack/need.sh
. "$here/need.sh"
need_go
cd "$repo"

export GOARCH="${1:-$("$go" env GOHOSTARCH)}"
case $GOARCH in amd64 | arm64) ;; *) die "$GOARCH: give amd64 or arm64" ;; esac
out=$repo/build/packages
stage=$repo/build/package/$GOARCH
root=$stage/root
host() { GOARCH=$("$go" env GOHOSTARCH) CGO_ENABLED=0 "$@"; }

# The version of a package begins with a digit. A commit after a tag comes after it, one without any
# tag before every release.
describe=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1750000000)}"
date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d)
case $describe in
v[0-9]*) version=$(echo "${describe#v}" | sed 's/-\([0-9]*\)-g/+\1.g/; s/-dirty$/+dirty/; s/-/~/g') ;;
*) version=0.0.0~git$date.$(echo "$describe" | tr -c '[:alnum:].\n' .) ;;
esac

maintainer=${MAINTAINER:-podd developers <podd@localhost>}

say "packages of podd $version for $GOARCH"
mkdir -p "$out" "$stage"
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath -buildvcs=false" "$go" build \
	-ldflags "-s -w -buildid= -X main.version=$describe -X main.commit=$commit" -o "$stage/podd" ./cmd/podd
"$here/build-runtime.sh" "$stage/runtime"
"$here/build-images.sh" "$stage/images"

rm -rf "$root"
make -s install-files DESTDIR="$root" PODD="$stage/podd" RUNTIME="$stage/runtime" IMAGES_BUILT="$stage/images"
mkdir -p "$root/usr/lib"
rm -rf "$root/usr/lib/systemd" && mv "$root/lib/systemd" "$root/usr/lib/" && rmdir "$root/lib" # /lib is a link to it
doc=$root/usr/share/doc/podd
install -D -m 0644 packaging/modules-load.conf "$root/usr/lib/modules-load.d/podd.conf"
install -D -m 0644 packaging/sysctl.conf "$root/usr/lib/sysctl.d/60-podd.conf"

# Manual pages and completions come from the commands themselves.
mkdir -p "$root/usr/share/man/man5" "$root/usr/share/man/man8"
host "$go" build -tags manpages -ldflags "-X main.version=$describe" -o "$stage/manpages" ./cmd/podd
"$stage/manpages" manpages "$root/usr/share/man/man8"
mv "$root"/usr/share/man/man8/*.5 "$root/usr/share/man/man5/"
host "$go" build -ldflags "-X main.version=$describe" -o "$stage/podd-here" ./cmd/podd
for shell in bash:bash-completion/completions/podd zsh:zsh/vendor-completions/_podd fish:fish/vendor_completions.d/podd.fish; do
	mkdir -p "$root/usr/share/$(dirname "${shell#*:}")"
	"$stage/podd-here" completion "${shell%%:*}" >"$root/usr/share/${shell#*:}"
done
rm "$stage/podd-here" "$stage/manpages"

# What is in it, and under which licences. The files of modules are where they were built from.
static=
copyright=/usr/share/doc/libseccomp-dev/copyright
[ "$GOARCH" = "$("$go" env GOHOSTARCH)" ] || copyright=$repo/build/cross/$GOARCH$copyright
if [ -e "$copyright" ]; then
	seccomp=$(dpkg-query -W -f '${Version}' libseccomp-dev 2>/dev/null || echo unknown)
	[ "$GOARCH" = "$("$go" env GOHOSTARCH)" ] || seccomp=$(basename "$repo/build/cross/$GOARCH"/libseccomp-dev_*.deb | cut -d_ -f2)
	static="-static libseccomp=$seccomp=$copyright"
fi
host "$go" build -C packaging -o "$stage/bom" ./bom
# shellcheck disable=SC2046,SC2086
GOARCH= "$stage/bom" -version "$version" -created "$SOURCE_DATE_EPOCH" -bill "$out/podd-$version-$GOARCH.spdx.json" -licences "$doc/licences" $static \
	"$stage/podd" $(find "$stage/runtime" -type f ! -name '.*' | sort)
cat >"$doc/copyright" <<'COPYRIGHT'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: podd
Comment: The container runtime and the modules that podd is made of have their own licences, which
 are in /usr/share/doc/podd/licences.gz. runc is linked statically with libseccomp (LGPL-2.1). Its
 sources are Debian's package libseccomp; runc's are the Go module github.com/opencontainers/runc of
 the version in that file, and hack/build-runtime.sh of podd links the two.

Files: *
Copyright: 2026 the podd authors
License: Apache-2.0
 On Debian systems, the full text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.
COPYRIGHT
{
	printf 'podd (%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' "$version-1" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
} >"$doc/changelog.Debian"
install -m 0644 SECURITY.md "$doc/"
install -m 0644 CHANGELOG.md "$doc/changelog"
rm "$doc/LICENSE" # Debian's own copy is named above
install -D -m 0644 packaging/lintian-overrides "$root/usr/share/lintian/overrides/podd"
gzip -9nf "$doc/licences" "$doc/changelog" "$doc/changelog.Debian" "$root"/usr/share/man/man5/*.5 "$root"/usr/share/man/man8/*.8
chmod -R u=rwX,go=rX "$root/usr"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

host "$go" build -C packaging -o "$repo/build/nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm
sed "s|@ARCH@|$GOARCH|; s|@VERSION@|$version|; s|@ROOT@|$root|; s|@MAINTAINER@|$maintainer|; s|@DATE@|$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)|" packaging/nfpm.yaml >"$stage/nfpm.yaml"
rpmarch=x86_64
[ "$GOARCH" = amd64 ] || rpmarch=aarch64
build/nfpm package -f "$stage/nfpm.yaml" -p deb -t "$out/podd_${version}_$GOARCH.deb" >&2
build/nfpm package -f "$stage/nfpm.yaml" -p rpm -t "$out/podd-$version-1.$rpmarch.rpm" >&2

tarball=podd-$version-linux-$GOARCH
rm -rf "$stage/tar" && mkdir -p "$stage/tar/$tarball"
cp -a "$root" "$stage/tar/$tarball/root"
install -m 0755 packaging/install.sh "$stage/tar/$tarball/"
install -m 0644 LICENSE README.md "$stage/tar/$tarball/"
echo "$GOARCH" >"$stage/tar/$tarball/arch"
find "$stage/tar" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
tar -C "$stage/tar" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu -c "$tarball" | gzip -9n >"$out/$tarball.tar.gz"
rm -rf "$stage/tar"
(cd "$out" && ls -l "podd_${version}_$GOARCH.deb" "podd-$version-1.$rpmarch.rpm" "$tarball.tar.gz" | awk '{printf "  %6.1f MB  %s\n", $5 / 1e6, $9}') >&2
