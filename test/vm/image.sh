#!/bin/sh
# Builds the Debian 12 that `make test-vm` boots, and prints its folder:
#
#   root.img   ext4, raw: systemd, Prometheus, what podd's documentation asks a
#              machine to have, and a unit that runs what the second disk brings
#   vmlinuz, initrd.img
#
# Nothing of podd's is in it, so that it is built once: the folder is named by a
# hash of this script and of what it puts in. It lies in $PODD_CACHE, or
# ~/.cache/podd-vm. The mirror is the one that this machine's apt uses, or
# $PODD_DEBIAN_MIRROR.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
die() {
	echo "test/vm/image.sh: $*" >&2
	exit 1
}
# shellcheck source=/dev/null
. "$repo/hack/need.sh"

suite=bookworm
packages=systemd,systemd-sysv,dbus,udev,kmod,apparmor,iproute2,iptables,nftables,curl,jq,make,procps,e2fsprogs,xfsprogs,nfs-common,nfs-kernel-server,prometheus,selinux-policy-default,initramfs-tools,linux-image-cloud-amd64

hash=$(cat "$here/image.sh" "$here/guest/podd-vm-test.service" | sha256sum | cut -c1-16)
cache=${PODD_CACHE:-${HOME:-/root}/.cache/podd-vm}
out=$cache/$hash
if [ -e "$out/root.img" ]; then
	echo "$out"
	exit 0
fi

[ "$(id -u)" = 0 ] || die "building the image needs root"
need_deb mmdebstrap mmdebstrap e2fsprogs mkfs.ext4 debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg

uri=$(debian_mirror "$suite")

mkdir -p "$cache"
work=$(mktemp -d "$cache/new.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "building the virtual machine's image (once; a few minutes)" >&2
# The kernel's disk and file system are all that the initrd is for.
cat >"$work/initramfs-hook" <<'HOOK'
#!/bin/sh
[ "$1" = prereqs ] && exit 0
. /usr/share/initramfs-tools/hook-functions
manual_add_modules virtio_pci virtio_blk ext4 quota_v2
HOOK
mmdebstrap --quiet --mode=root --variant=minbase --format=directory \
	--include="$packages" --aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/javascript/*' \
	--essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/etc/initramfs-tools/hooks"' \
	--essential-hook='echo MODULES=list >"$1/etc/initramfs-tools/conf.d/vm"' \
	--essential-hook="install -m 755 '$work/initramfs-hook' \"\$1/etc/initramfs-tools/hooks/vm\"" \
	"$suite" "$work/root" "$uri" >&2

root=$work/root
echo podd-vm >"$root/etc/hostname"
echo "127.0.0.1 localhost podd-vm" >"$root/etc/hosts"
echo "/dev/vda / ext4 defaults 0 1" >"$root/etc/fstab"
: >"$root/etc/machine-id"
# The policy of the machine that boots with security=selinux; the others have AppArmor.
printf 'SELINUX=permissive\nSELINUXTYPE=default\n' >"$root/etc/selinux/config"
install -m 644 "$here/guest/podd-vm-test.service" "$root/etc/systemd/system/"
# The serial ports carry the results and the console; nobody logs in.
for unit in serial-getty@ttyS0.service serial-getty@ttyS1.service getty@tty1.service \
	apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer dpkg-db-backup.timer \
	systemd-networkd-wait-online.service; do
	ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
# The tests configure them first.
for unit in prometheus.service nfs-server.service nfs-client.target rpcbind.service rpcbind.socket; do
	rm -f "$root"/etc/systemd/system/*.wants/$unit
done
mkdir -p "$root/payload"
ln -sf ../podd-vm-test.service "$root/etc/systemd/system/multi-user.target.wants/"
rm -rf "$root/var/cache/apt" "$root/var/lib/apt/lists"

cp "$root"/boot/vmlinuz-* "$work/vmlinuz"
cp "$root"/boot/initrd.img-* "$work/initrd.img"
rm -rf "$root/boot"
mkdir "$root/boot"
# Room for images and logs; what is not written takes no space. With project quotas,
# which count from the first file on.
mkfs.ext4 -q -L root -E lazy_itable_init=1,lazy_journal_init=1,quotatype=prjquota -O ^metadata_csum,project,quota -d "$root" "$work/root.img" 4G >/dev/null
e2fsck -fp "$work/root.img" >/dev/null || [ $? -eq 1 ] || die "the file system that mkfs.ext4 made is broken"
rm -rf "$root" "$work/initramfs-hook"
trap - EXIT
chmod 755 "$work"
mv -T "$work" "$out" 2>/dev/null || rm -rf "$work" # another was faster
# One image is enough: older ones go.
for old in "$cache"/????????????????; do
	[ "$old" = "$out" ] || rm -rf "$old"
done
echo "$out"
