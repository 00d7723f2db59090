# Checks of MemoryQoS: what the kernel protects and throttles of pods' memory (cgroup v2).
# Sourced by run.sh. The pods web (BestEffort) and scratch (Burstable, 16Mi of 64Mi) run.

# quality GROUP MIN LOW HIGH
quality() { has "$1" memory.min "$2" && has "$1" memory.low "$3" && has "$1" memory.high "$4"; }
# covered MIN LOW: by each cgroup above the pods, also where systemd sets them anew.
covered() {
	for group in /podd.slice /podd.slice/podd-kubepods.slice; do
		has $group memory.min "$1" && has $group memory.low "$2" && told "${group##*/}" MemoryMin "$1" && told "${group##*/}" MemoryLow "$2" || return 1
	done
	has /podd.slice/podd-kubepods.slice/podd-kubepods-burstable.slice memory.low "$2"
}
protected() {
	quality "$(scope scratch scratch)" 0 16777216 41943040 && quality "$(slice scratch)" 0 16777216 max &&
		quality "$(scope guaranteed main)" 67108864 0 max && quality "$(slice guaranteed)" 67108864 0 max && covered 83886080 16777216
}
unprotected() {
	quality "$(scope scratch scratch)" 0 0 max && quality "$(slice scratch)" 0 0 max && quality "$(scope web web)" 0 0 max &&
		quality "$(scope guaranteed main)" 0 0 max && quality "$(slice guaranteed)" 0 0 max && covered 0 0
}

# memory_protected: scratch and web were created before, guaranteed is new.
memory_protected() {
	cp /etc/podd/config.yaml /etc/podd/config.before
	before=$(containers)
	echo "memoryReservationPolicy: TieredReservation" >>/etc/podd/config.yaml
	echo "memoryThrottlingFactor: 0.5" >>/etc/podd/config.yaml
	systemctl restart podd.service && within 30 healthy && same "$before" || return 1
	drop guaranteed && within 150 ready guaranteed && within 60 protected || return 1
	high=$(cat "/sys/fs/cgroup$(scope web web)/memory.high")
	[ "$high" != max ] && [ $((high % 4096)) = 0 ] || { echo "memory.high of a container without a limit is $high"; return 1; }
	systemctl daemon-reload && protected || return 1
	curl -fsS -m 10 http://127.0.0.1:10255/metrics | grep -E '^kubelet_memory_qos_node_memory_min_bytes 6.7108864e.07' || { echo "no metric"; return 1; }
	echo "memory.high of a container without a limit is $high"
}

# memory_unprotected: nothing of it is left once it is switched off, and nothing restarts.
memory_unprotected() {
	before=$(containers)
	mv /etc/podd/config.before /etc/podd/config.yaml
	systemctl restart podd.service && within 30 healthy && within 60 unprotected && same "$before" || return 1
	systemctl daemon-reload && unprotected && rm $manifests/guaranteed.yaml && echo "memory.min, low and high are the default everywhere"
}

memory_checks() {
	check memory-that-pods-request-is-protected-up-to-the-root memory_protected
	check memory-is-no-longer-protected-once-that-is-switched-off memory_unprotected
}

# boot_memory has these alone, for who changes them.
boot_memory() {
	must machine-has-systemd-and-cgroup-v2 machine
	must install-puts-files-in-place install_podd
	must runtime-unit-starts runtime_starts
	must agent-unit-starts agent_starts
	must manifest-dropped-into-the-directory-runs manifest_runs
	memory_checks
	echo "done"
	systemctl poweroff
}
