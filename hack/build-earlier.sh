#!/bin/sh
# Builds podd, its runtime and its images as commit $1 had them, and prints the directory that
# holds podd, runtime/bin and images. It is kept, and made once for each commit.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
repo=$(dirname "$here")
die() {
	printf '%s\n' "make upgrade: $*" >&2
	exit 1
}

commit=$(git -C "$repo" rev-parse --verify --quiet "$1^{commit}") ||
	die "this clone has no commit $1 (a shallow one: git fetch --unshallow)"
kept=${XDG_CACHE_HOME:-$HOME/.cache}/podd/earlier-$(printf %.12s "$commit")
if [ ! -e "$kept/.complete" ]; then
	tree=$(mktemp -d)
	trap 'rm -rf "$tree"' EXIT
	git -C "$repo" archive "$commit" | tar -x -C "$tree"
	make -C "$tree" build runtime VERSION="earlier-$(printf %.12s "$commit")" COMMIT="$commit" >&2
	rm -rf "$kept"
	mkdir -p "$kept"
	cp -a "$tree/build/podd" "$tree/build/runtime" "$tree/build/images" "$kept/"
	: >"$kept/.complete"
fi
echo "$kept"
