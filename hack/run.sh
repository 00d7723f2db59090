#!/bin/sh
# make run: podd in the foreground, with the places of an installed podd. The
# images that were built are put into the image directory, and a first pod into
# the manifest directory if that has none yet.
set -eu

repo=$(cd "$(dirname "$0")/.." && pwd)
podd=$repo/build/podd
manifests=${MANIFESTS:-/etc/podd/manifests}
images=${IMAGES:-/var/lib/podd/images}
die() { echo "make run: $*" >&2; exit 1; }
# shellcheck source=hack/need.sh
. "$repo/hack/need.sh"

[ "$(id -u)" = 0 ] || die "podd makes containers and networks, which takes root: sudo make run"
need_deb nftables nft iproute2 ip mount mount

mkdir -p "$manifests" "$images"
chmod 700 "$manifests"
for tar in "$repo"/build/images/*.tar; do
	to=$images/$(basename "$tar")
	cmp -s "$tar" "$to" || { cp "$tar" "$to.new" && mv -f "$to.new" "$to"; }
done
if [ -z "$(find "$manifests" -maxdepth 1 \( -name '*.yaml' -o -name '*.yml' -o -name '*.json' -o -name '*.manifest' \) -print -quit)" ]; then
	cp "$repo/examples/web.yaml" "$manifests/.web.yaml.new"
	mv "$manifests/.web.yaml.new" "$manifests/web.yaml"
	echo "put a first pod into $manifests/web.yaml"
fi
cat <<TEXT

podd runs the pods of $manifests. In another terminal:

  $podd ps -o wide            the pods and their addresses
  curl http://127.0.0.1:8080/ the first pod's page, by its hostPort
  cp my.yaml $manifests/      a pod more

Ctrl-C stops podd and leaves the pods running; "make stop" ends them too.

TEXT
exec "$podd" run ${RUN:-}
