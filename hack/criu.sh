#!/bin/sh
# Prints the directory of a criu that can checkpoint on this kernel, for PATH; nothing where
# the machine's own can, or none can. A newer one than the machine's is taken out of Debian
# 13's packages, once, into build/criu: nothing is installed, and package sources stay as
# they are.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$(dirname "$here")/build/criu

die() { echo "criu: $*" >&2; exit 1; }
# shellcheck source=hack/need.sh
. "$here/need.sh"

criu check >/dev/null 2>&1 && exit 0
if [ ! -x "$out/bin/criu" ]; then
	[ "$(id -u)" = 0 ] || die "needs root"
	need_deb mmdebstrap mmdebstrap debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg
	echo "taking criu out of Debian 13's packages, once, into $out" >&2
	rm -rf "$out"
	mkdir -p "$out/bin"
	mmdebstrap --quiet --mode=root --variant=extract --include=criu --aptopt='APT::Install-Recommends "false"' \
		trixie "$out/root" "$(debian_mirror trixie)" >&2 || die "mmdebstrap failed"
	# With the C library that it was built for, and without debug registers (130 is
	# FI_NO_BREAKPOINTS in criu's fault-injection.h): there are hypervisors that take a
	# breakpoint and never report it, and criu waits for that report without an end.
	cat >"$out/bin/.new" <<-END
		#!/bin/sh
		export CRIU_FAULT=130
		exec "$out/root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$out/root/usr/lib/x86_64-linux-gnu" "$out/root/usr/sbin/criu" "\$@"
	END
	chmod 755 "$out/bin/.new"
	mv "$out/bin/.new" "$out/bin/criu"
fi
"$out/bin/criu" check >&2 || { echo "criu: Debian 13's cannot checkpoint on this kernel either" >&2; exit 0; }
echo "$out/bin"
