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
# shellcheck source=internal/versions/versions.env
. "$repo/internal/versions/versions.env"

hash=$({
	echo "$apiserver $etcd"
	cat "$here"/mkimages/*.go "$0"
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
# The names are those of Kubernetes 1.36 (test/utils/image/manifest.go).
"$go" run ./hack/mkimages -out "$out" \
	-program "registry.k8s.io/e2e-test-images/sample-apiserver:1.29.2=$apiserver" \
	-program "registry.k8s.io/etcd:$ETCD-0=$etcd"
echo "$out"
