# The machine with cgroup v1: first as it is installed, where podd and runc make
# the cgroups, then with a runtime that was told to leave that to systemd. Sourced
# by run.sh.

machine_v1() {
	systemd_is_first || return 1
	for each in memory cpu pids hugetlb freezer; do
		[ "$(stat -fc %T /sys/fs/cgroup/$each)" = cgroupfs ] || { echo "$each is no hierarchy of v1: $(stat -fc %T /sys/fs/cgroup/$each)"; return 1; }
	done
	[ -z "$(cat /sys/fs/cgroup/unified/cgroup.controllers)" ] || { echo "v2 has $(cat /sys/fs/cgroup/unified/cgroup.controllers)"; return 1; }
	swap_on || return 1
	echo "$(systemctl --version | head -n 1), Linux $(uname -r), $(hierarchies) hierarchies"
}
hierarchies() { findmnt -rn -t cgroup,cgroup2 | wc -l; }

# says_v1: the only word that cgroup v1 is worth.
says_v1() { journalctl -b -u podd.service -o cat | grep 'failCgroupV1.*podd runs on cgroup v1 and v2'; }

# bounded GROUP: as scratch is.
bounded() {
	has "$1" memory.limit_in_bytes 67108864 && has "$1" cpu.shares 102 && has "$1" cpu.cfs_quota_us 50000 && has "$1" cpu.cfs_period_us 100000
}
# limits_v1: of the pod, its container, its class and all pods; and the container
# is where they are.
limits_v1() {
	group=$(slice scratch)
	inside=$(scope scratch scratch)
	class=${group%/*}
	memory=$(($(awk '$1 == "MemTotal:" {print $2}' /proc/meminfo) * 1024 - 96 * 1024 * 1024))
	bounded "$group" && has "$group" pids.max 500 && bounded "$inside" && has "$inside" memory.memsw.limit_in_bytes 67108864 || return 1
	has "$class" cpu.shares 102 && has "$(slice web)" cpu.shares 2 && has "${class%/*}" memory.limit_in_bytes $memory || return 1
	main=$(process scratch scratch)
	for each in memory cpu,cpuacct pids hugetlb freezer; do
		grep -q ":$each:$inside\$" "/proc/$main/cgroup" || { echo "the container is not in $inside of $each: $(cat "/proc/$main/cgroup")"; return 1; }
	done
	echo "pod and container 67108864 bytes, 102 shares, quota 50000 of 100000, 500 pids; all pods $memory bytes; $inside"
}
by_files() {
	limits_v1 >/dev/null && systemctl daemon-reload && sleep 1 && limits_v1 || return 1
	case $group in
	/podd/kubepods/burstable/pod*) ;;
	*) return 1 ;;
	esac
}

use_systemd() {
	mkdir -p /etc/podd/containerd.d
	cat >/etc/podd/containerd.d/systemd.toml <<-TOML
		version = 4
		[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
		  SystemdCgroup = true
	TOML
	systemctl restart podd-runtime.service && systemctl restart podd.service && manifest_runs
}
by_systemd() {
	limits_v1 || return 1
	case $inside in
	/podd.slice/podd-kubepods.slice/podd-kubepods-burstable.slice/podd-kubepods-burstable-pod*.slice/cri-containerd-*.scope) ;;
	*) return 1 ;;
	esac
	told_v1 "${group##*/}" && told "${group##*/}" TasksMax 500 && told "${group##*/}" Transient yes && told_v1 "${inside##*/}"
}
told_v1() {
	told "$1" MemoryLimit 67108864 && told "$1" CPUShares 102 && told "$1" CPUQuotaPerSecUSec 500ms && told "$1" ActiveState active
}
reloads() {
	systemctl daemon-reload && sleep 1 && limits_v1
}
restarts() { restart_agent && restart_runtime && within 20 killed; }

# killed: for its memory, in the kernel's words.
killed() { [ "$(container hungry hungry .state.terminated.exitCode)" = 137 ]; }
hungry() {
	drop hungry
	within 150 killed || { container hungry hungry .; return 1; }
	scope=$(container hungry hungry '.state.terminated.containerID | sub(".*//"; "")')
	dmesg | grep "oom-kill:.*task_memcg=$(slice hungry)/[^,]*$scope" >/dev/null || { dmesg | grep oom-kill; return 1; }
	runs hungry beside || { echo "the container beside it: $(container hungry beside .)"; return 1; }
	container hungry hungry .state.terminated | tr -d '\n '
}
# hungry_named: podd says so, too. Where the group is systemd's, containerd may say
# Error: it drops the kernel's word about a group that is gone by then, and on v1
# the pod's group does not count the kills of those below it.
hungry_named() { hungry && within 20 ended hungry hungry OOMKilled; }

# left: what any hierarchy or systemd has of the pods with these UIDs.
left() {
	for uid in "$@"; do
		find /sys/fs/cgroup -type d -name "*pod$uid*"
		systemctl list-units --all --plain --no-legend "*pod$uid*"
	done
}
nothing_left() { remains=$(left "$@") && [ -z "$remains" ]; }
leave() {
	uids=
	for each in "$@"; do uids="$uids $(pod "$each" .metadata.uid)"; done
	# shellcheck disable=SC2086
	before=$(left $uids | wc -l)
	[ "$before" -ge $(($# * 5)) ] || { echo "only $before before"; return 1; }
	for each in "$@"; do rm $manifests/"$each".yaml; done
	for each in "$@"; do within 60 gone "$each" || return 1; done
	# shellcheck disable=SC2086
	within 20 nothing_left $uids || { left $uids; return 1; }
	echo "$# pods, $before groups and units before, none now, of $(hierarchies) hierarchies"
}
all_end() { leave hungry scratch web; }
some_end() { leave hungry huge; }

boot_v1() {
	check machine-has-systemd-and-cgroup-v1 machine_v1
	must install-puts-files-in-place install_podd
	install_again >/dev/null # what the other machine is asked about
	must runtime-unit-starts runtime_starts
	must agent-unit-starts agent_starts
	check podd-says-that-cgroup-v1-is-no-failure says_v1
	must manifest-dropped-into-the-directory-runs manifest_runs
	check cgroups-are-made-by-podd-and-runc by_files
	check a-container-that-eats-its-memory-is-oomkilled hungry_named
	check a-removed-pod-leaves-no-cgroup all_end
	must a-runtime-that-was-told-to-use-systemd-starts use_systemd
	check cgroups-are-made-by-systemd by_systemd
	check slices-keep-their-limits-when-systemd-reloads reloads
	check huge-pages-are-given-and-bounded huge
	check a-container-of-systemds-that-eats-its-memory-is-killed hungry
	check restarts-leave-containers-of-systemds-alone restarts
	nfs
	check systemd-forgets-the-slices-of-pods-that-ended some_end
	clock
	check uninstall-leaves-nothing-running uninstall
	echo "done"
	systemctl poweroff
}
