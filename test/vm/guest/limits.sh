# Checks of what pods are held to by the kernel: cgroups, memory, OOM scores,
# AppArmor, user namespaces. Sourced by run.sh.

# tree CONTROLLER: where its groups are. On cgroup v1 each has a hierarchy.
tree() {
	if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo /sys/fs/cgroup; else echo "/sys/fs/cgroup/$1"; fi
}
# has GROUP FILE VALUE
has() {
	found=$(cat "$(tree "${2%%.*}")$1/$2")
	[ "$found" = "$3" ] || { echo "$2 of $1 is $found, not $3"; return 1; }
}
# told SLICE PROPERTY VALUE: so systemd knows it. What it does not know, it undoes.
told() {
	found=$(systemctl show -P "$2" "$1")
	[ "$found" = "$3" ] || { echo "systemd says that $2 of $1 is $found, not $3"; return 1; }
}

# slice POD, scope POD CONTAINER: their cgroups, made by systemd or by podd and runc.
slice() {
	find "$(tree memory)/podd.slice" "$(tree memory)/podd" -type d -name "*pod$(pod "$1" .metadata.uid)*" 2>/dev/null | sed "s:^$(tree memory)::"
}
scope() {
	id=$(container "$1" "$2" '.containerID | sub(".*//"; "")')
	find "$(tree memory)$(slice "$1")" -mindepth 1 -maxdepth 1 -name "*$id*" | sed "s:^$(tree memory)::"
}
# process POD CONTAINER: its first process.
process() { head -n 1 "$(tree memory)$(scope "$1" "$2")/cgroup.procs"; }

swap_on() {
	truncate -s 0 /swap && chmod 600 /swap && fallocate -l 256M /swap && mkswap -q /swap && swapon /swap
}

cgroups() {
	id=$(crictl ps --name scratch -q)
	pid=$(crictl inspect "$id" | jq .info.pid)
	group=$(cut -d: -f3 "/proc/$pid/cgroup")
	case $group in
	*.slice/*"$id".scope) ;;
	*) echo "container is in $group"; return 1 ;;
	esac
	[ "$group" = "$(scope scratch scratch)" ] || { echo "container is in $group, not $(scope scratch scratch)"; return 1; }
	has "$group" memory.max 67108864 && pod_cgroup "${group%/*}" && echo "$group"
}

# pod_cgroup: podd's own groups, above the runtime's: the pod's, its class' and
# the one of all pods.
pod_cgroup() {
	name=${1##*/}
	has "$1" memory.max 67108864 && has "$1" cpu.max '50000 100000' && has "$1" cpu.weight 4 && has "$1" pids.max 500 || return 1
	told "$name" MemoryMax 67108864 && told "$name" CPUQuotaPerSecUSec 500ms && told "$name" CPUWeight 4 && told "$name" TasksMax 500 || return 1
	told "$name" Transient yes && told "$name" ActiveState active || return 1
	systemctl daemon-reload && has "$1" memory.max 67108864 && has "$1" cpu.max '50000 100000' || return 1
	class=${1%/*}
	has "$class" cpu.weight 4 && has "${class%/*}/podd-kubepods-besteffort.slice" cpu.weight 1
}

# all_pods: what the machine has less what the configuration reserves.
all_pods() {
	root=/podd.slice/podd-kubepods.slice
	memory=$(($(awk '$1 == "MemTotal:" {print $2}' /proc/meminfo) * 1024 - 96 * 1024 * 1024))
	max=$(cat /proc/sys/kernel/pid_max)
	[ "$(cat /proc/sys/kernel/threads-max)" -ge "$max" ] || max=$(cat /proc/sys/kernel/threads-max)
	has $root memory.max $memory && told podd-kubepods.slice MemoryMax $memory || return 1
	has $root pids.max $((max - 1000)) && told podd-kubepods.slice TasksMax $((max - 1000)) || return 1
	has $root cpu.weight "$(systemctl show -P CPUWeight podd-kubepods.slice)" || return 1
	weight=$(cat /sys/fs/cgroup$root/cpu.weight)
	[ "$weight" -gt 39 ] && [ "$weight" -lt 79 ] || { echo "cpu.weight $weight is not that of 1.8 processors"; return 1; }
	echo "memory.max $memory, cpu.weight $weight, pids.max $((max - 1000)) of $(($(awk '$1 == "MemTotal:" {print $2}' /proc/meminfo) * 1024)) bytes, 2 processors, $max"
}

# readings runs those tests of podd's package stats/kernel that need a real cgroup, here of v2
# with all its controllers.
readings() {
	/payload/kernel.test -test.run 'TestOpenFiles|TestACgroupOfTheSameName|TestFilesStayOpen|TestASetting' -test.v >/tmp/readings.out 2>&1 &&
		[ "$(grep -c -- '--- PASS: .*/v2' /tmp/readings.out)" = 4 ] || { cat /tmp/readings.out; return 1; }
}

# pod_limits: the slice of a Guaranteed pod and its container, whose weight has
# another scale: the kubelet's is linear, runc's is not since 1.3.2. Then the class
# of the Burstable ones, of which there are two by now: 100m each.
pod_limits() {
	within 150 ready guaranteed || return 1
	group=$(slice guaranteed)
	[ "${group%/*}" = /podd.slice/podd-kubepods.slice ] || { echo "a Guaranteed pod is in $group"; return 1; }
	has "$group" memory.max 67108864 && has "$group" cpu.max '50000 100000' && has "$group" cpu.weight 20 && has "$group" pids.max 500 || return 1
	told "${group##*/}" MemoryMax 67108864 && told "${group##*/}" Transient yes || return 1
	group=$(scope guaranteed main)
	has "$group" memory.max 67108864 && has "$group" cpu.max '50000 100000' && has "$group" cpu.weight 59 || return 1
	has "$group" memory.oom.group 1 && has "$group" memory.swap.max 0 || return 1
	has "$(scope web web)" memory.max max && has "$(scope web web)" cpu.weight 1 || return 1
	has /podd.slice/podd-kubepods.slice/podd-kubepods-burstable.slice cpu.weight 8 || return 1
	echo "$group"
}

# score PID VALUE
score() {
	[ "$(cat "/proc/$1/oom_score_adj")" = "$2" ] || { echo "oom_score_adj of $(tr '\0' ' ' <"/proc/$1/cmdline") is $(cat "/proc/$1/oom_score_adj"), not $2"; return 1; }
}
oom_scores() {
	sandbox=$(crictl pods --name ^guaranteed -q | head -n 1)
	score "$(crictl inspectp "$sandbox" | jq .info.pid)" -998 || return 1
	memory=$(($(awk '$1 == "MemTotal:" {print $2}' /proc/meminfo) * 1024))
	burstable=$((1000 - 1000 * 16 * 1024 * 1024 / memory))
	score "$(process guaranteed main)" -997 && score "$(process web web)" 1000 && score "$(process scratch scratch)" $burstable || return 1
	score "$(property podd.service MainPID)" -999 && score "$(property podd-runtime.service MainPID)" -999 || return 1
	echo "sandbox -998, Guaranteed -997, Burstable $burstable, BestEffort 1000, podd and containerd -999"
}

# ended POD CONTAINER REASON
ended() { [ "$(container "$1" "$2" '.state.terminated.reason')" = "$3" ]; }
runs() { [ "$(container "$1" "$2" '.state.running != null')" = true ]; }

# eats: with swap on, and with a process that would have lived.
eats() {
	[ "$(wc -l </proc/swaps)" = 2 ] || { echo "no swap is on"; return 1; }
	within 150 ended eater eater OOMKilled || { container eater eater .state; return 1; }
	[ "$(container eater eater .state.terminated.exitCode)" = 137 ] || { container eater eater .; return 1; }
	[ ! -e /srv/eater/lived-on ] || { echo "the container's first process outlived its second"; return 1; }
	runs eater beside || { echo "the container beside it: $(container eater beside .)"; return 1; }
	container eater eater .state.terminated | tr -d '\n '
}

eats_of_pod() {
	within 150 ended shared eater OOMKilled || { container shared eater .state; return 1; }
	runs shared beside || { echo "the container beside it: $(container shared beside .)"; return 1; }
	group=$(slice shared)
	has "$group" memory.max 50331648 && has "$group" cpu.max '30000 100000' && has "$group" cpu.weight 4 || return 1
	has "$(scope shared beside)" memory.max 50331648 && has "$(scope shared beside)" cpu.max '30000 100000' || return 1
	echo "$group"
}

# swapless: LimitedSwap, too, would give none to pods of a file, which count as
# critical.
swapless() {
	none=0
	for id in $(crictl ps --state running -q); do
		group=$(find /sys/fs/cgroup/podd.slice -name "cri-containerd-$id.scope")
		max=$(cat "${group:-/none}/memory.swap.max" 2>/dev/null) || continue # it ended meanwhile
		[ "$max" = 0 ] || { echo "container $id may swap $max"; return 1; }
		none=$((none + 1))
	done
	[ $none -gt 0 ] || { echo "no container was looked at"; return 1; }
	echo "$none containers get none"
	[ $none -ge 8 ]
}

# profile CONTAINER LABEL
profile() {
	label=$(cat "/proc/$(process apparmor "$1")/attr/current")
	[ "$label" = "$2" ] || { echo "$1 runs as $label, not $2"; return 1; }
}
apparmor() {
	[ "$(cat /sys/module/apparmor/parameters/enabled)" = Y ] || { echo "the kernel's AppArmor is off: $(cat /sys/kernel/security/lsm)"; return 1; }
	within 150 ready apparmor || { pod apparmor .status; return 1; }
	profile silent 'cri-containerd.apparmor.d (enforce)' && profile default 'cri-containerd.apparmor.d (enforce)' || return 1
	profile free unconfined && profile privileged unconfined && profile local 'podd-vm-test (enforce)' || return 1
	[ -e "/proc/$(process apparmor free)/root/forbidden" ] || { echo "the container without a profile could not write"; return 1; }
	[ ! -e "/proc/$(process apparmor local)/root/forbidden" ] || { echo "the profile forbids nothing"; return 1; }
	cat /sys/kernel/security/lsm
}

waits() { container "$1" "$2" '.state.waiting | "\(.reason): \(.message)"' | grep "$3"; }
no_profile() {
	within 150 waits noprofile main '^CreateContainerError: .*apparmor profile not found podd-vm-nowhere' || { pod noprofile .status; return 1; }
}

# users: root in the pod is nobody outside.
users() {
	within 150 ready users || { pod users .status; return 1; }
	pid=$(process users main)
	read -r inside outside length <"/proc/$pid/uid_map"
	[ "$inside $length" = "0 65536" ] && [ "$outside" -ge 65536 ] || { echo "uid_map: $inside $outside $length"; return 1; }
	[ "$(awk '$1 == "Uid:" {print $2}' "/proc/$pid/status")" = "$outside" ] || { echo "its first process is $(grep Uid: "/proc/$pid/status")"; return 1; }
	[ "$(stat -c %u:%g /srv/users/made)" = 0:0 ] || { echo "the file on the host is $(stat -c %u:%g /srv/users/made)"; return 1; }
	echo "root is $outside outside"
}
# users_tmpfs: the reason is named; nothing else is to be had of this kernel.
users_tmpfs() {
	within 150 waits usersmem main 'idmap' || { pod usersmem .status; return 1; }
}

# chatty: the log's files, and what a reader of the last one finds.
chatty_rotated() {
	dir=$(dirname "$(readlink /var/log/containers/chatty-*)")
	[ "$(find "$dir" -name '0.log.*' | wc -l)" -ge 1 ] && [ "$(stat -c %s "$dir/0.log")" -lt 11534336 ]
}
logs() {
	for setting in containerLogMaxSize=10Mi containerLogMaxFiles=5 imageGCHighThresholdPercent=85 imageGCLowThresholdPercent=80 imageMinimumGCAge=2m0s; do
		found=$(curl -fsS -m 10 --unix-socket /run/podd/podd.sock http://podd/configz | jq -r ".kubeletconfig.${setting%=*}")
		[ "$found" = "${setting#*=}" ] || { echo "${setting%=*} is $found, not ${setting#*=}"; return 1; }
	done
	within 150 ready chatty && within 150 chatty_rotated || { ls -l "$dir"; return 1; }
	find "$dir" -type f -printf '%f %s, '
}

# slices_gone: of pods that went, systemd knows nothing.
slices_are() {
	units=$(systemctl list-units --all --plain --no-legend 'podd-kubepods*-pod*.slice' | awk '{print $1}' | sort)
	dirs=$(find /sys/fs/cgroup/podd.slice -type d -name 'podd-kubepods*-pod*.slice' -printf '%f\n' | sort)
	[ "$(echo "$units" | wc -l)" = "$1" ] && [ "$units" = "$dirs" ]
}
slices_gone() {
	before=$(systemctl list-units --all --plain --no-legend 'podd-kubepods*-pod*.slice' | wc -l)
	for each in guaranteed eater shared apparmor noprofile users usersmem chatty hugewait hugemore; do rm $manifests/$each.yaml; done
	within 150 slices_are 2 || { echo "want those of web and scratch; units: $units; directories: $dirs"; return 1; }
	has /podd.slice/podd-kubepods.slice/podd-kubepods-burstable.slice cpu.weight 4 || return 1
	echo "$before before, 2 now"
}
