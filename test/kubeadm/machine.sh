# The first process of a machine: namespaces of its own, and directories below $1 in the
# places that kubeadm, podd and etcd write to.
set -eu
dir=$1 name=$2
mount --make-rprivate /
mount -t proc proc /proc
hostname "$name"
# A podd of the machine around this one, also one that was killed, has mounts where this
# one's will be: not here.
awk '$5 ~ "^/(run/podd|var/lib/(podd|kubelet))(/|$)" {print $5}' /proc/self/mountinfo | sort -r | while read -r at; do
	umount -l "$at"
done
for d in etc var/lib opt; do
	mkdir -p "$dir/upper/$d" "$dir/work/$d"
	mount -t overlay overlay -o "lowerdir=/$d,upperdir=$dir/upper/$d,workdir=$dir/work/$d" "/$d"
done
mount -t tmpfs tmpfs /run
# What podd and containerd keep is on no overlay, on which there can be no other. etcd waits
# for its disk with each write.
mkdir -p "$dir/log"
mount --bind "$dir/log" /var/log
for d in podd kubelet; do
	mkdir -p "$dir/$d" "/var/lib/$d"
	mount --bind "$dir/$d" "/var/lib/$d"
done
mkdir -p /var/lib/etcd
mount -t tmpfs tmpfs /var/lib/etcd
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward # kubeadm demands it
: >"$dir/up"
# Whoever loses its parent is this process's child, and waited for.
while :; do
	sleep 1000 &
	wait
done
