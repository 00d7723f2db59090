# Checks of a kernel with SELinux, whose policy is in force but permissive. Sourced by run.sh.

selinux_machine() {
	systemd_is_first || return 1
	[ "$(cat /sys/fs/selinux/enforce)" = 0 ] || { echo "SELinux is off: $(cat /sys/kernel/security/lsm)"; return 1; }
	# Debian 12's policy has no container_file_t, although its lxc_contexts names it.
	mkdir -p /usr/share/containers/selinux
	echo "file = \"system_u:object_r:svirt_image_t:s0\"" >/usr/share/containers/selinux/contexts
	echo "$(cat /sys/kernel/security/lsm), $(tr -d '\0' </proc/self/attr/current)"
}

# label of a file; mounted NAME: the options of the mount of a volume of the pod labelled.
label() { stat -c %C "$1"; }
volume_of() { echo "/var/lib/podd/pods/$(pod labelled .metadata.uid)/volumes/kubernetes.io~$1"; }
mounted() { findmnt -rn -t tmpfs -o OPTIONS "$(volume_of "$1")" | tr -d '"' | grep -F context=system_u:object_r:svirt_image_t:s0:c1,c2; }

# selinux_labels: volumes in memory are mounted with the pod's label, and so are all files
# that podd writes there later.
selinux_labels() {
	drop labelled && within 150 ready labelled || { pod labelled .status; return 1; }
	for volume in secret/key projected/all; do
		mounted $volume || { findmnt -rn -o OPTIONS "$(volume_of $volume)"; return 1; }
	done
	for file in secret/key/word projected/all/word; do
		found=$(label "$(volume_of $file)")
		[ "$found" = system_u:object_r:svirt_image_t:s0:c1,c2 ] || { echo "the label of $file is $found"; return 1; }
	done
	sed -i 's/word: one/word: two/' $manifests/labelled.yaml
	within 60 grep -q two "$(volume_of secret/key/word)" || return 1
	found=$(label "$(volume_of secret/key/word)")
	[ "$found" = system_u:object_r:svirt_image_t:s0:c1,c2 ] || { echo "the label of a new version is $found"; return 1; }
	findmnt -rn -t tmpfs -o OPTIONS "$(volume_of secret/key)"
}
# selinux_recursive: a pod that wants its files relabelled has no label on its mounts.
selinux_recursive() {
	drop relabelled && within 150 ready relabelled || { pod relabelled .status; return 1; }
	options=$(findmnt -rn -t tmpfs -o OPTIONS "/var/lib/podd/pods/$(pod relabelled .metadata.uid)/volumes/kubernetes.io~secret/key")
	case $options in
	"" | *svirt_image_t*) echo "the options of its mount: $options"; return 1 ;;
	esac
	echo "$options"
}

# boot_selinux is of a kernel that was booted with security=selinux.
boot_selinux() {
	must machine-has-systemd-and-selinux selinux_machine
	must install-puts-files-in-place install_podd
	must runtime-unit-starts runtime_starts
	must agent-unit-starts agent_starts
	check files-in-memory-have-the-pods-selinux-label selinux_labels
	check files-of-a-pod-that-wants-them-relabelled-are-mounted-without selinux_recursive
	echo "done"
	systemctl poweroff
}
