#!/bin/sh
# Runs inside the virtual machine, at each of its boots. Standard output is the
# first serial port: one line a check, "ok NAME text" or "not ok NAME text", and
# "done" at the very end. vm_test.go knows all names.
set -u
export PATH=/usr/libexec/podd:/usr/sbin:/usr/bin:/sbin:/bin
state=/var/lib/podd-vm-test
manifests=/etc/podd/manifests
socket=unix:///run/podd/containerd.sock
mkdir -p $state

crictl() { /usr/libexec/podd/crictl --config=/dev/null --runtime-endpoint $socket --image-endpoint $socket --timeout $((60 * ${slow:-1}))s "$@"; }
remark() { echo "# $*"; }

# uptime has $up be the seconds since the boot, which go on where the clock is set, and
# $cents the hundredths. It starts no process, which would cost an emulated processor much.
uptime() {
	read -r cents _ </proc/uptime
	up=${cents%.*} cents=$up${cents#*.}
}

# check NAME FUNCTION: reports the function's outcome with the time it took. What
# it prints is shown when it fails.
check() {
	uptime
	began=$up
	if said=$("$2" 2>&1); then
		uptime
		echo "ok $1 $((up - began))s $(echo "$said" | tail -n 1)"
	else
		uptime
		echo "not ok $1 $((up - began))s $(echo "$said" | tail -n ${verbose:-12} | tr '\n\r' '; ')"
		failed "$1"
		return 1
	fi
}
# must is a check without which the others only take their time to fail.
must() { check "$@" || { remark "the rest makes no sense without it"; systemctl poweroff; sleep infinity; }; }

# failed leaves on the console what a person will want to read.
failed() {
	{
		echo "=== $1 failed ==="
		systemctl --no-pager --lines=0 status podd.service podd-runtime.service
		journalctl --no-pager -b -n 60 -u podd -u podd-runtime -o short-monotonic
		crictl pods
		crictl ps -a
	} >/dev/ttyS1 2>&1
}

# slow is how many times slower this machine is than one that boots within 15
# seconds; on two quiet cores, where a boot takes 20 to 29, it is 2: emulation
# shares its processors with others.
# Each boot measures anew: it may have had neighbours that are gone.
slow=$((1 + $(cut -d. -f1 /proc/uptime) / 15))
[ $slow -le 20 ] || slow=20

# within SECONDS COMMAND...: tries until the command succeeds. Between two tries it rests
# for twice as long as one takes, and three seconds at most: most tries start programs of
# podd's, a second each of a processor's time here, which what is waited for needs, too.
within() {
	uptime
	deadline=$((up + $1 * slow)) tried=$cents
	shift
	until "$@"; do
		uptime
		if [ "$up" -ge "$deadline" ]; then
			echo "not in time: $*"
			return 1
		fi
		rest=$((20 + 2 * (cents - tried)))
		[ $rest -le 300 ] || rest=300
		sleep "$((rest / 100)).$((rest % 100 / 10))"
		uptime
		tried=$cents
	done
}

running() { ids=$(crictl ps -q) && [ "$(echo "$ids" | wc -w)" = "$1" ]; }
property() { systemctl show -P "$2" "$1"; }
# pod NAME FILTER, container POD NAME FILTER: of what podd says.
api() { curl -fsS -m $((10 * slow)) http://127.0.0.1:10255/pods; }
pod() { api | jq -r --arg name "$1-podd-vm" ".items[] | select(.metadata.name == \$name) | $2"; }
container() { pod "$1" ".status | (.initContainerStatuses + .containerStatuses)[]? | select(.name == \"$2\") | $3"; }
ready() { [ "$(pod "$1" '.status.conditions[] | select(.type == "Ready") | .status')" = True ]; }
active() { [ "$(property "$1" ActiveState)" = active ]; }
# containers: name, id and start of each that runs. That of the pod late is left
# out: its deadline ends it at some point of the first boot.
containers() {
	# shellcheck disable=SC2046
	crictl inspect $(crictl ps -q) | jq -r 'if type == "array" then .[] else . end | .status | "\(.metadata.name) \(.id) \(.startedAt)"' | grep -v '^late ' | sort
}
# same BEFORE: the containers that run are those of before, not started again.
same() {
	now=$(containers)
	[ "$now" = "$1" ] && [ -n "$now" ] && return
	echo "before: $1; now: $now"
	return 1
}
address() { crictl inspectp "$(crictl pods --name "^$1" --state ready -q | head -n 1)" | jq -r .status.network.ip; }
answers() { curl -fsS -m 10 "http://$(address web):8080/" | grep -q 'It runs'; }

# shellcheck source=/dev/null
. /payload/limits.sh
# shellcheck source=/dev/null
. /payload/memory.sh
# shellcheck source=/dev/null
. /payload/life.sh
# shellcheck source=/dev/null
. /payload/shutdown.sh
# shellcheck source=/dev/null
. /payload/hugepages.sh
# shellcheck source=/dev/null
. /payload/clock.sh
# shellcheck source=/dev/null
. /payload/volumes.sh
# shellcheck source=/dev/null
. /payload/v1.sh
# shellcheck source=/dev/null
. /payload/selinux.sh
# shellcheck source=/dev/null
. /payload/packages.sh
# shellcheck source=/dev/null
. /payload/database.sh

systemd_is_first() { [ "$(cat /proc/1/comm)" = systemd ] || { echo "PID 1 is $(cat /proc/1/comm)"; return 1; }; }
machine() {
	systemd_is_first || return 1
	[ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] || { echo "cgroups are $(stat -fc %T /sys/fs/cgroup)"; return 1; }
	swap_on && apparmor_parser -r /payload/apparmor-profile || return 1
	echo "$(systemctl --version | head -n 1), Linux $(uname -r)"
}

# make -o: the build lies there, and there is no Go here.
make_in_tree() { make -C $state/src -s -o build -o runtime "$@"; }

install_podd() {
	cp -a /payload/src $state/ && make_in_tree install || return 1
	for f in /usr/bin/podd /usr/libexec/podd/containerd /usr/libexec/podd/runc /lib/systemd/system/podd.service \
		/lib/systemd/system/podd-runtime.service /etc/podd/config.yaml $manifests /var/lib/podd/images/pause.tar; do
		[ -e $f ] || { echo "no $f"; return 1; }
	done
	cp /payload/busybox.tar /var/lib/podd/images/
}

# install_again: the last field is what the kubelet refuses to start with on v1.
install_again() {
	# The disk of the machine is small: without thresholds of disks, no image is removed from it.
	echo "evictionHard: {memory.available: 100Mi}" >>/etc/podd/config.yaml
	echo "podPidsLimit: 500" >>/etc/podd/config.yaml
	echo "systemReserved: {cpu: 200m, memory: 96Mi, pid: '1000'}" >>/etc/podd/config.yaml
	echo "failCgroupV1: true" >>/etc/podd/config.yaml
	make_in_tree install && tail -n 2 /etc/podd/config.yaml | grep systemReserved
}

runtime_starts() {
	systemctl enable --now podd-runtime.service && active podd-runtime.service && crictl version | grep RuntimeVersion
}

healthy() { curl -fsS -m 10 http://127.0.0.1:10248/healthz; }
agent_starts() { # the unit is ready before the runtime has answered
	systemctl enable --now podd.service && active podd.service && within 30 healthy
}

drop() {
	cp "/payload/manifests/$1.yaml" "$manifests/.$1" && mv "$manifests/.$1" "$manifests/$1.yaml"
}

manifest_runs() {
	drop web && drop scratch && within 90 running 2 && [ -s /srv/scratch/starts ] && containers
}

query() { curl -fsS -m 10 -G http://127.0.0.1:9090/api/v1/query --data-urlencode "query=$1" | jq -r '.data.result[0].value[1]'; }
running_pods_is() { [ "$(query 'sum(kubelet_running_pods)')" = "$1" ]; }
prometheus() {
	cat >/etc/prometheus/prometheus.yml <<-YAML
		global: {scrape_interval: 2s}
		scrape_configs:
		- job_name: kubelet
		  static_configs: [{targets: ['127.0.0.1:10255']}]
	YAML
	systemctl restart prometheus.service || return 1
	within 60 running_pods_is 2 || { curl -sS -m 10 http://127.0.0.1:10255/metrics | grep running_pods; return 1; }
	echo "kubelet_running_pods $(query 'sum(kubelet_running_pods)'), up $(query 'up')"
	systemctl stop prometheus.service
}

restart_agent() {
	before=$(containers)
	systemctl restart podd.service && active podd.service && sleep 3 && same "$before" && answers
}

restart_runtime() {
	before=$(containers)
	agent=$(property podd.service MainPID)
	systemctl restart podd-runtime.service && active podd-runtime.service && sleep 3 && same "$before" && answers || return 1
	[ "$(property podd.service MainPID)" = "$agent" ] || { echo "podd was restarted with the runtime"; return 1; }
}

another_pid() { pid=$(property "$1" MainPID) && [ "$pid" != 0 ] && [ "$pid" != "$2" ] && active "$1"; }
kill_unit() {
	before=$(containers)
	pid=$(property "$1" MainPID)
	kill -9 "$pid" && within 60 another_pid "$1" "$pid" && sleep 3 && same "$before" && answers
}
kill_agent() { kill_unit podd.service; }
kill_runtime() { kill_unit podd-runtime.service; }

watchdog() {
	mkdir -p /run/systemd/system/podd.service.d
	printf '[Service]\nWatchdogSec=5\nTimeoutAbortSec=5\n' >/run/systemd/system/podd.service.d/quick.conf
	systemctl daemon-reload && systemctl restart podd.service || return 1
	before=$(containers)
	pid=$(property podd.service MainPID)
	sleep 8 # fed in time, it lives
	[ "$(property podd.service MainPID)" = "$pid" ] || { echo "the watchdog bit a healthy podd"; return 1; }
	kill -STOP "$pid" && within 60 another_pid podd.service "$pid" && sleep 2 && same "$before" || return 1
	journalctl -b -u podd.service | grep -i "watchdog timeout" || { echo "it was not the watchdog"; return 1; }
	rm -r /run/systemd/system/podd.service.d
	systemctl daemon-reload && systemctl restart podd.service
}

units_active() { within 60 active podd-runtime.service && within 60 active podd.service; }

# back: all containers run (one each of web, scratch and crash, four of shop), in
# this boot, and the tmpfs is there.
back() {
	within 120 running 7 && within 20 answers || return 1
	[ "$(wc -l </srv/scratch/starts)" -gt "$(cat $state/starts)" ] || { echo "scratch did not start again"; return 1; }
	findmnt -rn -t tmpfs | grep -q kubernetes.io~empty-dir/tmp || { echo "no tmpfs for the emptyDir"; return 1; }
}

# clean: as many sandboxes, leases, network namespaces and links as pods that run
# (web, scratch, shop, crash), and a directory too for the two that ended. Of each
# container's last life a dead one may stay, with its sandbox: that is where the
# last state and the restart count come from.
leases() { find /run/podd/cni/leases -type f -name '[0-9]*.[0-9]*' 2>/dev/null | wc -l; }
namespaces() { findmnt -rn -t nsfs -o TARGET | grep -c /netns/; }
veths() { ip -o link show type veth | wc -l; }
directories() { find /var/lib/podd/pods -mindepth 1 -maxdepth 1 | wc -l; }
clean() {
	found="sandboxes $(crictl pods --state ready -q | wc -l) containers $(crictl ps -q | wc -l) leases $(leases) netns $(namespaces) veths $(veths) directories $(directories)"
	crictl version >/dev/null || return 1 # nothing is less than it allows
	dead_sandboxes=$(crictl pods --state notready -q | wc -l) dead=$(crictl ps -a --state exited -q | wc -l)
	[ "$found" = "$1" ] && [ "$dead_sandboxes" -le 6 ] && [ "$dead" -le 13 ]
}
nothing_leaked() {
	want="sandboxes 4 containers 7 leases 4 netns 4 veths 4 directories 6"
	within 60 clean "$want" || echo "want $want, and at most 6 dead sandboxes and 13 containers"
	echo "$found; dead: sandboxes $dead_sandboxes, containers $dead"
	clean "$want"
}

processes() { pgrep -al '^podd'; pgrep -al '^containerd'; pgrep -al '^runc'; }
uninstall() {
	[ "$(processes | wc -l)" -ge 4 ] || { echo "where are podd, containerd and two shims? $(processes)"; return 1; }
	make_in_tree uninstall >$state/uninstall.log || { cat $state/uninstall.log; return 1; }
	left=$(processes)
	[ -z "$left" ] || { echo "still running: $left"; return 1; }
	[ "$(namespaces) $(veths) $(leases)" = "0 0 0" ] || { echo "left: netns $(namespaces), veths $(veths), leases $(leases)"; return 1; }
	mounts=$(findmnt -rn -o TARGET | grep podd)
	[ -z "$mounts" ] || { echo "still mounted: $mounts"; return 1; }
	slices=$(systemctl list-units --all --plain --no-legend 'podd*.slice'; find /sys/fs/cgroup -type d \( -name 'podd*.slice' -o -name kubepods \))
	[ -z "$slices" ] || { echo "left: $slices"; return 1; }
	[ ! -e /usr/bin/podd ] && [ ! -e /lib/systemd/system/podd.service ]
}
uninstall_order() { said_is 0 "$starts $ends" && said; }
data_left() {
	[ -s /srv/scratch/starts ] && [ -e $manifests/web.yaml ] && [ -d /var/lib/podd/containerd ] && grep 'rm -rf' $state/uninstall.log
}

# installed has podd and its runtime run their first two pods.
installed() {
	must machine-has-systemd-and-cgroup-v2 machine
	must install-puts-files-in-place install_podd
	check install-keeps-an-existing-configuration install_again
	must runtime-unit-starts runtime_starts
	must agent-unit-starts agent_starts
	must manifest-dropped-into-the-directory-runs manifest_runs
}

# boot_limits is of what the kernel holds pods to.
boot_limits() {
	installed
	check pod-address-answers answers
	check cgroups-are-made-by-systemd cgroups
	check all-pods-leave-what-is-reserved all_pods
	check readings-of-cgroups-tell-what-is-true-now readings
	check prometheus-of-debian-scrapes-podd prometheus
	for each in guaranteed shared eater apparmor noprofile users usersmem chatty; do drop $each; done
	check pod-and-container-have-their-limits pod_limits
	check oom-scores-follow-the-class oom_scores
	check a-container-that-eats-its-memory-dies-whole eats
	check a-pods-own-limit-holds-all-its-containers eats_of_pod
	check apparmor-profiles-are-applied apparmor
	check an-unknown-apparmor-profile-is-named no_profile
	check root-in-a-user-namespace-is-nobody-outside users
	check what-this-kernel-cannot-map-is-named users_tmpfs
	check logs-are-rotated-by-the-packaged-configuration logs
	check nobody-swaps swapless
	check huge-pages-are-given-and-bounded huge
	check what-the-machine-lacks-of-huge-pages-is-said huge_refused
	check huge-pages-of-a-pod-that-ended-go-to-one-that-was-refused huge_freed
	check restart-of-podd-sees-more-huge-pages huge_more
	check systemd-forgets-the-slices-of-pods-that-ended slices_gone
	memory_checks
	quotas
	check uninstall-leaves-nothing-running uninstall
	echo "done"
	systemctl poweroff
}

# boot_life is of a pod's whole life: what restarts, reboots and the removal of podd do to it.
boot_life() {
	installed
	for each in late once shop unready; do drop $each; done
	check init-containers-and-sidecars-start-in-order shop_starts
	check a-removed-pod-ends-in-order shop_ends
	check restart-of-podd-flaps-no-readiness readiness
	check the-journal-finds-what-is-about-a-pod journal_knows
	check events-of-a-pod-are-there remember_events
	check restart-of-podd-leaves-containers-alone restart_agent
	check restart-of-the-runtime-keeps-pods restart_runtime
	check killed-podd-comes-back-and-containers-stay kill_agent
	check killed-runtime-comes-back-and-containers-stay kill_runtime
	check watchdog-restarts-a-podd-that-stands-still watchdog
	check pods-end-and-wait-before-the-reboot before_reboot
	check pods-run-again-after-a-shutdown-that-was-called-off called_off
	check a-job-runs-before-the-reboot job_runs
	next second
	systemctl reboot
}

boot_second() {
	must units-start-at-boot units_active
	check reboot-ends-pods-in-order reboot_order
	check reboot-runs-a-job-again-that-had-not-ended job_again
	must reboot-brings-every-pod-back back
	check reboot-forgets-back-off after_reboot
	check reboot-runs-init-containers-again init_again
	check reboot-leaves-ended-pods-ended stay_ended
	check reboot-leaks-nothing nothing_leaked
	check reboot-keeps-events events_kept
	next third
	sync # what a machine loses of the last seconds is not what is tested
	echo b >/proc/sysrq-trigger
}

boot_third() {
	check power-cut-brings-every-pod-back back
	check power-cut-leaves-ended-pods-ended stay_ended
	check power-cut-leaks-nothing nothing_leaked
	check power-cut-keeps-events events_kept
	check uninstall-leaves-nothing-running uninstall
	check uninstall-ends-pods-in-order uninstall_order
	check uninstall-leaves-data-and-says-so data_left
	echo "done"
	systemctl poweroff
}

next() {
	echo "$1" >$state/stage
	head -c 8 /proc/sys/kernel/random/boot_id >$state/boot
	if [ -e /srv/scratch/starts ]; then wc -l </srv/scratch/starts >$state/starts; else echo 0 >$state/starts; fi
	sync
	remark "reboot"
}

# The kernel's command line says where this machine begins.
begin=$(sed -n 's/.*podd.test=\([^ ]*\).*/\1/p' /proc/cmdline)
stage=$(cat $state/stage 2>/dev/null || echo "$begin")
remark "boot $stage, up $(cut -d' ' -f1 /proc/uptime)s"
"boot_$stage"
