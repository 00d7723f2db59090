package capacity

import (
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// System identifies this machine, its boot and its operating system, from machine-id(5), the
// firmware's UUID, the boot ID and os-release(5). It leaves out what the machine does not
// state, and the fields that do not describe the machine.
func System() v1.NodeSystemInfo {
	return v1.NodeSystemInfo{
		MachineID:  firstOf("/etc/machine-id", "/var/lib/dbus/machine-id"),
		SystemUUID: firstOf("/sys/class/dmi/id/product_uuid", "/proc/device-tree/vm,uuid", "/etc/machine-id"),
		BootID:     firstOf("/proc/sys/kernel/random/boot_id"),
		OSImage:    osImage("/etc/os-release", "/usr/lib/os-release"),

		RunningInUserNamespace: new(inUserNamespace("/proc/self/uid_map")),
	}
}

// inUserNamespace reports whether a uid_map is not that of the machine's first user
// namespace, which maps all IDs to themselves (user_namespaces(7)). Without the file the
// kernel has no user namespaces.
func inUserNamespace(file string) bool {
	fields := strings.Fields(firstOf(file))
	return len(fields) > 0 && !slices.Equal(fields, []string{"0", "0", "4294967295"})
}

// firstOf returns the content of the first non-empty file, without the white space around it.
func firstOf(files ...string) string {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if s := strings.Trim(string(text), " \t\n\x00"); err == nil && s != "" {
			return s
		}
	}
	return ""
}

// osImage returns PRETTY_NAME, or "Unknown" if there is none, as cAdvisor does.
func osImage(files ...string) string {
	for line := range strings.Lines(firstOf(files...)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return "Unknown"
}
