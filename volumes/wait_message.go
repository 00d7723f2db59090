package volumes

import (
	"fmt"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
)

// describePending says, after a separator, which volumes a setup waits for and since when. It is
// empty if the setup waits for none.
func (m *Mounter) describePending(p *v1.Pod, pending []pendingVolume, separator string) string {
	var all strings.Builder
	for i, v := range pending {
		if i == 0 {
			all.WriteString(separator + "waiting for ")
		} else {
			all.WriteString(", ")
		}
		fmt.Fprintf(&all, "volume %q since %s%s", v.volume, v.since.Format(time.TimeOnly), m.describeMount(p, v.volume))
	}
	return all.String()
}

// describeMount returns a volume's path and the mount that it is on, in parentheses, or
// nothing if the path is not known. It reads the mount table only, which does not hang
// on a dead mount.
func (m *Mounter) describeMount(p *v1.Pod, volume string) string {
	path, err := m.Path(p, volume)
	if err != nil {
		return ""
	}
	at := &mountinfo.Info{Mountpoint: ""}
	_, err = mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		inside := path == i.Mountpoint || strings.HasPrefix(path, strings.TrimSuffix(i.Mountpoint, "/")+"/")
		if inside && len(i.Mountpoint) >= len(at.Mountpoint) { // of stacked mounts, the last is visible
			at = i
		}
		return true, false
	})
	// A volume that is not mounted yet is not on the mount of the pod's directory.
	unmounted := strings.HasPrefix(path, m.PodDir(p.UID)+"/") && !strings.HasPrefix(at.Mountpoint, m.PodDir(p.UID)+"/")
	if err != nil || at.Mountpoint == "" || unmounted {
		return fmt.Sprintf(" (%s)", path)
	}
	return fmt.Sprintf(" (%s, on %s from %s mounted at %s)", path, at.FSType, at.Source, at.Mountpoint)
}
