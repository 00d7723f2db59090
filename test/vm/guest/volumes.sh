# Checks of volumes that need more than most machines have: an NFS server, which is
# this machine itself, and a file system with project quotas, which its root is.
# Sourced by run.sh.

directory() { echo "/var/lib/podd/pods/$(pod "$1" .metadata.uid)"; }
shares() { findmnt -rn -t nfs,nfs4 -o TARGET; }
no_shares() { [ -z "$(shares)" ]; }
# shown WORDS: podd describe says so of the pod.
shown() { podd describe "$1-podd-vm" | grep -F "$2"; }

# serve: NFS 4 alone, which needs no other service.
serve() {
	mkdir -p /srv/nfs /etc/nfs.conf.d
	echo question >/srv/nfs/asked
	echo "/srv/nfs 127.0.0.1(rw,no_root_squash,no_subtree_check)" >/etc/exports
	printf '[nfsd]\nvers3=n\nthreads=2\ngrace-time=10\nlease-time=10\n' >/etc/nfs.conf.d/test.conf
	systemctl start nfs-server.service
}
answered() { [ "$(cat /srv/nfs/answer 2>/dev/null)" = "question answered" ]; }
# share_ends: it leaves neither mount nor directory, and all that lies on the server.
share_ends() {
	dir=$(directory share)
	[ -d "$dir" ] && rm $manifests/share.yaml && within 90 gone share && within 30 no_shares || { shares; return 1; }
	within 30 [ ! -e "$dir" ] || { find "$dir"; return 1; }
	[ "$(cat /srv/nfs/asked)" = question ] && answered
}
share() {
	serve || { systemctl status --no-pager nfs-server; return 1; }
	drop share
	within 90 answered && within 60 ready share || { pod share .status; return 1; }
	[ "$(shares)" = "$(directory share)/volumes/kubernetes.io~nfs/share" ] || { echo "mounted: $(shares)"; return 1; }
	findmnt -rn -t nfs4 -o SOURCE,FSTYPE,OPTIONS | cut -c1-60
	share_ends
}

dead() {
	nft -f - <<-NFT
		table inet dead {
			chain out { type filter hook output priority 0; tcp dport 2049 drop; tcp sport 2049 drop; }
		}
	NFT
}
# writes_hang: a process that ends waits for the server, since it writes what is in its
# files first; a signal would not end that.
writes_hang() { grep -qs nfs_wb_all /proc/[0-9]*/stack; }
# dead_server: podd starts and runs beside it, a pod that waits for it says so, one
# that has it ends all the same and says what that costs, and when the server is back
# nothing is left of it all.
dead_server() {
	drop share && within 90 ready share || return 1
	dir=$(directory share)
	dead
	within 30 writes_hang || { echo "nobody waits for the server"; return 1; }
	systemctl restart podd.service && drop beside && rm $manifests/share.yaml || return 1
	removed=$(date +%s)
	within 60 ready beside || { echo "another pod waits, too"; pod beside .status; return 1; }
	within 120 gone share && within 60 [ ! -e "$dir" ] || { podd describe share-podd-vm; podd ps; return 1; }
	removed=$(($(date +%s) - removed))
	journalctl -b -u podd.service -o cat | grep "type=Warning reason=FailedKillPod.*127.0.0.1:/srv/nfs.* does not respond" || { echo "nobody was told"; return 1; }
	drop waits
	within 60 shown waits 'waiting for volume "share"' && ready beside && ! ready waits || { podd describe waits-podd-vm; return 1; }
	nft delete table inet dead
	within 120 ready waits || { podd describe waits-podd-vm; podd ps; return 1; }
	for each in waits beside; do rm $manifests/$each.yaml; done
	within 90 gone waits && within 90 gone beside && within 60 no_shares || { shares; return 1; }
	systemctl stop nfs-server.service
	answered && echo "the pod that had it was gone after ${removed}s"
}

counted() { curl -fsS -m 10 http://127.0.0.1:10255/metrics | sed -n 's/^podd_volume_looks_total{method="counted"} //p'; }
# quota: of what counted and walked do alike, deleting a file that they go on writing
# to, only the file system knows. It is believed where the pod cannot change its count.
quota() {
	mkdir -p /srv/quota && rm -f /srv/quota/go
	drop counted && drop walked
	within 90 ready counted && within 90 ready walked || { pod counted .status; return 1; }
	dir=$(directory counted)/volumes/kubernetes.io~empty-dir/data
	id=$(lsattr -pd "$dir" | awk '{print $1}')
	[ "$id" -ge 1879048192 ] || { echo "the volume has project $id"; return 1; }
	[ "$(lsattr -pd "$(directory walked)/volumes/kubernetes.io~empty-dir/data" | awk '{print $1}')" = 0 ] || { echo "the other has a project, too"; return 1; }
	pid=$(process counted main)
	inside="nsenter --user --target $pid"
	$inside chmod 600 "/proc/$pid/root/data/file" || return 1
	! $inside chattr -p 7 "/proc/$pid/root/data/file" || { echo "the pod takes its files out of the count"; return 1; }
	chattr -p 7 "/proc/$(process walked main)/root/data/file" || { echo "the other pod cannot do that either"; return 1; }
	systemctl restart podd.service && within 60 ready counted || return 1
	touch /srv/quota/go
	within 90 phase counted "Failed Evicted" || { pod counted .status; du -s "$dir"; return 1; }
	[ "$(pod counted .status.message)" = 'Usage of EmptyDir volume "data" exceeds the limit "4Mi". ' ] || { pod counted .status.message; return 1; }
	[ "$(counted)" -ge 1 ] && phase walked "Running " || { pod walked .status; return 1; }
	for each in counted walked; do rm $manifests/$each.yaml; done
	within 90 gone counted && within 90 gone walked || return 1
	echo "project $id, counted $(counted) times"
}

# quota_of_xfs runs the tests of podd's package quota on a new xfs: with project quotas,
# where the kernel must count, and without, where podd must see that it does not.
quota_of_xfs() {
	mkdir -p /srv/xfs && truncate -s 512M /srv/xfs.img && mkfs.xfs -q /srv/xfs.img || return 1
	for each in prjquota noquota; do
		mount -o loop,$each /srv/xfs.img /srv/xfs || return 1
		TMPDIR=/srv/xfs PODD_TEST_QUOTAS=$each /payload/quota.test -test.run TestTheRunningKernel -test.v >/tmp/xfs.out 2>&1
		status=$?
		umount /srv/xfs
		[ $status = 0 ] && grep -q "^--- PASS" /tmp/xfs.out || { cat /tmp/xfs.out; return 1; }
		echo "$each: $(sed -n 's/.*projects_test.go:[0-9]*: //p' /tmp/xfs.out)"
	done
	rm /srv/xfs.img
}

# What has nothing to do with cgroups the machine with cgroup v1 does, which has least to
# do: all run side by side.
nfs() {
	check nfs-volume-is-mounted-and-unmounted share
	check dead-nfs-server-holds-up-its-own-pods-alone dead_server
	check project-quotas-of-xfs-count quota_of_xfs
}
quotas() { check project-quota-measures-an-emptydir quota; }

# The same alone, for who changes them: podd.test=volumes.
boot_volumes() {
	must machine-has-systemd-and-cgroup-v2 machine
	must install-puts-files-in-place install_podd
	must runtime-unit-starts runtime_starts
	must agent-unit-starts agent_starts
	nfs
	quotas
	echo "done"
	systemctl poweroff
}
