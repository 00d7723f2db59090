package bundle

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// lowestOOMScore is the lowest score that a container of a pod may be given: the
// kubelet's -997 for Guaranteed pods, and containerd's -998 for sandboxes.
const lowestOOMScore = -998

// MayLowerOOMScore says whether a container may be given the negative oom_score_adj that
// Kubernetes wants for it. It tries on this process, and restores the old value: neither
// a capability (user namespaces) nor the lack of it (a lower score inherited from systemd)
// gives a certain answer. runc fails if it is denied.
func MayLowerOOMScore() bool { return mayLower("/proc/self/oom_score_adj") }

func mayLower(path string) bool {
	old, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	// The lower of both is tried: a daemon at -999 can still make a -998.
	if err := os.WriteFile(path, fmt.Append(nil, lowestOOMScore), 0); err != nil {
		return false
	}
	return os.WriteFile(path, old, 0) == nil
}

// snapshotterFor returns the snapshotter that works below dir: overlayfs, or
// native (whole copies: slow, but it works) where the kernel has no overlayfs or
// dir lies on one, as inside a container. why is empty for overlayfs.
func snapshotterFor(dir string) (name, why string) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "native", dir + " is itself on an overlay filesystem"
	}
	if known, err := kernelHas("overlay"); err == nil && !known {
		return "native", "the kernel has no overlay filesystem (modprobe overlay)"
	}
	return "overlayfs", ""
}

// kernelHas looks for a filesystem in /proc/filesystems, and for a module of that name that
// can be loaded on demand.
func kernelHas(fs string) (bool, error) {
	f, err := os.Open("/proc/filesystems")
	if err != nil {
		return false, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if slices.Contains(strings.Fields(lines.Text()), fs) {
			return true, nil
		}
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false, err
	}
	deps, err := os.ReadFile("/lib/modules/" + unix.ByteSliceToString(u.Release[:]) + "/modules.dep")
	if err != nil {
		return false, err
	}
	return strings.Contains(string(deps), "/"+fs+".ko"), nil
}
