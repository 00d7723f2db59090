#!/bin/sh
# Builds the images of a cluster that kubeadm makes as two archives, once for each state of
# what they are made of, and prints their common path: $1 is the directory of the programs
# (kube-apiserver, kube-controller-manager, kube-scheduler, etcd; kube-proxy, coredns),
# $2 kubeadm, which knows the images' names. PATH-control-plane.tar is for the control
# plane's node alone, PATH-node.tar for every node.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repo=$(dirname "$here")
go=${GO:-go}
programs=$1
kubeadm=$2
repository=localhost/podd/kubeadm
# shellcheck source=internal/versions/versions.env
. "$repo/internal/versions/versions.env"
version=v$KUBERNETES

die() { echo "make kubeadm: $*" >&2; exit 1; }
# shellcheck source=hack/need.sh
. "$here/need.sh"

hash=$({
	basename "$programs"
	cat "$here"/mkimages/*.go "$here"/images/pause/pause.c "$0"
} | sha256sum | cut -c1-12)
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
cache=${cache:-$repo/build}/podd
out=$cache/kubeadm-images-$hash
if [ -s "$out-node.tar" ] && [ -s "$out-control-plane.tar" ]; then
	echo "$out"
	exit 0
fi

need_go
need_deb nftables nft
need_deb gcc gcc libc6-dev /usr/include/stdlib.h
nft=$(command -v nft || echo /usr/sbin/nft)
echo "building the images of kubeadm's cluster, once, into $out-*.tar" >&2
work=$(mktemp -d "$cache/kubeadm-images.XXXXXX")
trap 'rm -rf "$work"' EXIT
gcc -Os -Wall -Wextra -Werror -static -s -Wl,--build-id=none -o "$work/pause" "$here/images/pause/pause.c"
# A program has the name of its image; kube-proxy calls nft.
set --
node=
for image in $("$kubeadm" config images list --image-repository="$repository" --kubernetes-version="$version"); do
	name=${image##*/}
	name=${name%%:*}
	case $name in
	pause) node="$node -program $image=$work/pause" ;;
	kube-proxy) node="$node -program $image=$programs/kube-proxy,$nft" ;;
	coredns) node="$node -program $image=$programs/coredns" ;;
	*) set -- "$@" -program "$image=$programs/$name" ;;
	esac
done
rm -f "$cache"/kubeadm-images-????????????-*.tar
cd "$repo"
"$go" run ./hack/mkimages "$@" -out "$out-control-plane.tar"
# shellcheck disable=SC2086 # words
"$go" run ./hack/mkimages $node -out "$out-node.tar"
echo "$out"
