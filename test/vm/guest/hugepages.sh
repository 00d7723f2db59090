# Checks of huge pages, of which the kernel's command line sets eight of 2 MiB
# aside. Sourced by run.sh.

mi=1048576

# may_take GROUP BYTES: in pages of 2 MiB, taken or reserved; of others none.
may_take() {
	limit=limit_in_bytes
	[ ! -e /sys/fs/cgroup/cgroup.controllers ] || limit=max
	has "$1" "hugetlb.2MB.$limit" "$2" && has "$1" "hugetlb.2MB.rsvd.$limit" "$2" || return 1
	[ ! -e /sys/kernel/mm/hugepages/hugepages-1048576kB ] || has "$1" "hugetlb.1GB.$limit" 0
}
free_pages() { [ "$(awk '$1 == "HugePages_Free:" {print $2}' /proc/meminfo)" = "$1" ]; }
# tells CONTAINER TEXT: so it said in its log.
tells() { cat /var/log/containers/"$1"-podd-vm_*.log 2>/dev/null | grep "$2"; }
pages_of() { echo "/var/lib/podd/pods/$(pod "$1" .metadata.uid)/volumes/kubernetes.io~empty-dir/pages"; }
# all_huge POD BYTES: what all pods together may take; the pod is Guaranteed.
all_huge() { may_take "$(dirname "$(slice "$1")")" "$2"; }

huge() {
	free_pages 8 || { echo "the machine has $(grep HugePages /proc/meminfo)"; return 1; }
	drop huge
	within 150 ready huge && within 60 tells huge ' done$' || { pod huge .status; return 1; }
	may_take "$(slice huge)" $((4 * mi)) && may_take "$(scope huge main)" $((4 * mi)) || return 1
	all_huge huge $((16 * mi)) && may_take "$(slice scratch)" 0 && may_take "$(scope scratch scratch)" 0 || return 1
	tells huge ' may have 4 MiB$' && tells huge ' took two$' && tells huge ' /pages hugetlbfs .*pagesize=2M' || { tells huge .; return 1; }
	! tells huge ' took a third$' || { echo "it took more than it may have"; return 1; }
	free_pages 6 || { echo "two are taken: $(grep HugePages /proc/meminfo)"; return 1; }
	found=$(stat -c '%a %g' "$(pages_of huge)")
	[ "$found" = "2775 2000" ] || { echo "mode and group of the volume are $found"; return 1; }
	echo "pod and container $((4 * mi)), all pods $((16 * mi)), others 0; $(findmnt -rn -o FSTYPE,OPTIONS "$(pages_of huge)")"
}

# refused POD TEXT: with upstream's reason for a pod that nothing can make room for,
# and what a user reads of it.
refused() {
	within 60 phase "$1" "Failed UnexpectedAdmissionError" || { pod "$1" .status; return 1; }
	podd ps "$1" | grep -F "$2" || { podd ps "$1"; return 1; }
}
huge_refused() {
	for each in hugewait hugegiant hugemore; do drop $each; done
	refused hugegiant "the pod requests 1Gi of hugepages-1Gi, and 0 of the node's 0 are free" || return 1
	refused hugemore "the pod requests 20Mi of hugepages-2Mi, and 12Mi of the node's 16Mi are free" || return 1
	refused hugewait "the pod requests 14Mi of hugepages-2Mi, and 12Mi of the node's 16Mi are free" || return 1
	rm $manifests/hugegiant.yaml
}

huge_freed() {
	volume=$(pages_of huge)
	[ -e "$volume" ] && rm $manifests/huge.yaml && within 60 gone huge && within 60 ready hugewait || { podd ps hugewait; return 1; }
	[ ! -e "$volume" ] && ! findmnt -rn -t hugetlbfs | grep podd || { echo "the volume is still there"; return 1; }
	free_pages 8 || { echo "not all are free again: $(grep HugePages /proc/meminfo)"; return 1; }
	may_take "$(slice hugewait)" $((14 * mi)) && phase hugemore "Failed UnexpectedAdmissionError" && slice hugewait
}

# huge_more: what the machine has is found out when podd starts.
huge_more() {
	before=$(containers)
	sysctl -q vm.nr_hugepages=20 && free_pages 20 || { echo "no more pages to be had: $(grep HugePages /proc/meminfo)"; return 1; }
	systemctl restart podd.service && within 60 ready hugemore || { podd ps hugemore; return 1; }
	may_take "$(slice hugemore)" $((20 * mi)) && all_huge hugemore $((40 * mi)) || return 1
	now=$(containers | grep -v "^main $(container hugemore main '.containerID | sub(".*//"; "")') ")
	[ "$now" = "$before" ] || { echo "before: $before; now: $now"; return 1; }
	slice hugemore
}
