#!/bin/sh
# Installs podd out of this tarball, below / or $DESTDIR; "install.sh uninstall" ends all pods and
# removes it. Configuration, manifests and data stay in either case.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=${DESTDIR:-}
units="podd-runtime.service podd.service"
die() {
	echo "install.sh: $*" >&2
	exit 1
}
[ -n "$root" ] || [ "$(id -u)" = 0 ] || die "installing podd needs root: sudo $0"
live() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

case "${1:-install}" in
install)
	machine=$(uname -m)
	case "$machine:$(cat "$here/arch")" in
	x86_64:amd64 | aarch64:arm64) ;;
	*) [ -n "$root" ] || die "this is podd for $(cat "$here/arch"), and the machine is $machine" ;;
	esac
	if [ -z "$root" ]; then
		for each in nft ip mount; do
			PATH=$PATH:/usr/sbin:/sbin command -v $each >/dev/null || die "$each is missing: install nftables, iproute2 (iproute) and mount (util-linux)"
		done
		for each in kubelet k3s k3s-agent; do
			! pgrep -x $each >/dev/null 2>&1 || die "$each runs on this machine: two agents would share /var/log/pods and cgroups. Stop and disable it first"
		done
	fi
	kept=
	if [ -e "$root/etc/podd/config.yaml" ]; then
		kept="--exclude=./etc/podd/config.yaml"
		echo "kept /etc/podd/config.yaml as it is"
	fi
	# shellcheck disable=SC2086
	(cd "$here/root" && tar -c $kept .) | tar -x -C "${root:-/}" --no-same-owner -p --keep-directory-symlink
	if live; then
		systemctl daemon-reload
		systemctl try-restart $units # an upgrade; no container notices it
		echo "installed; start it now and at every boot with: systemctl enable --now $units"
	fi
	;;
uninstall)
	if live && [ -e /usr/bin/podd ]; then
		/usr/libexec/podd/stop-pods.sh /usr/bin/podd /usr/libexec/podd
		systemctl disable --now $units
	fi
	(cd "$here/root" && find usr ! -type d) | while read -r file; do rm -f "$root/$file"; done
	rm -rf "$root/usr/libexec/podd" "$root/usr/share/doc/podd"
	rm -f "$root/etc/systemd/logind.conf.d/zz-podd.conf"
	! live || systemctl daemon-reload
	echo "podd is removed. To remove its configuration, manifests, images and pods' logs, too:"
	echo "  rm -rf --one-file-system /etc/podd /var/lib/podd /run/podd /var/log/pods /var/log/containers"
	;;
*) die "give nothing, or uninstall" ;;
esac
