#!/bin/sh
# Builds the images of upstream's certification tests that are programs of modules as one
# archive, once for each state of what they are made of, and prints its path: $1 is upstream's
# sample-apiserver, $2 its etcd. The other ones are those of hack/build-suite-images.sh.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repo=$(dirname "$here")
go=${GO:-go}
apiserver=$1
etcd=$2

die() { echo "make certification: $*" >&2; exit 1; }
# shellcheck source=hack/need.sh
. "$here/need.sh"

hash=$({
	echo "$apiserver $etcd"
	cat "$here"/mkimages/*.go "$repo"/test/cluster/suiteimages/*.go "$repo"/internal/versions/versions.env "$0"
} | sha256sum | cut -c1-12)
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
cache=${cache:-$repo/build}/podd
out=$cache/certification-images-$hash.tar
if [ -s "$out" ]; then
	echo "$out"
	exit 0
fi
need_go
echo "building the images of upstream's certification tests, once, into $out" >&2
cd "$repo"
rm -f "$cache"/certification-images-????????????.tar
"$go" run ./hack/mkimages -out "$out" \
	-program "sample-apiserver=$apiserver" -program "etcd=$etcd"
echo "$out"
