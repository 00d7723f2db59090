package volumes

import (
	"fmt"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
)

// waitsFor says, after a separator, which volumes a set-up is at and since when; nothing
// before the first one's turn.
func (m *Mounter) waitsFor(p *v1.Pod, waits []waited, separator string) string {
	var all strings.Builder
	for i, w := range waits {
		if i == 0 {
			all.WriteString(separator + "waiting for ")
		} else {
			all.WriteString(", ")
		}
		fmt.Fprintf(&all, "volume %q since %s%s", w.volume, w.since.Format(time.TimeOnly), m.behind(p, w.volume))
	}
	return all.String()
}

// behind says what one waits for whom a volume lets wait: its path, and the mount that
// has it. Only the mount table is asked, which answers also for a dead mount. It is
// empty where there is nothing to say.
func (m *Mounter) behind(p *v1.Pod, volume string) string {
	path, err := m.Path(p, volume)
	if err != nil {
		return ""
	}
	at := &mountinfo.Info{Mountpoint: ""}
	_, err = mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		inside := path == i.Mountpoint || strings.HasPrefix(path, strings.TrimSuffix(i.Mountpoint, "/")+"/")
		if inside && len(i.Mountpoint) >= len(at.Mountpoint) { // of mounts on each other the last is seen
			at = i
		}
		return true, false
	})
	// What is still to be mounted in the pod's directory is not on what has that.
	unmounted := strings.HasPrefix(path, m.PodDir(p.UID)+"/") && !strings.HasPrefix(at.Mountpoint, m.PodDir(p.UID)+"/")
	if err != nil || at.Mountpoint == "" || unmounted {
		return fmt.Sprintf(" (%s)", path)
	}
	return fmt.Sprintf(" (%s, on %s from %s mounted at %s)", path, at.FSType, at.Source, at.Mountpoint)
}
