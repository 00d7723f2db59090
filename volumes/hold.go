package volumes

import (
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Hold keeps the pod's live volumes as they are until release is called, if the
// container mounts a part of one (subPath). What is bound for it is a file of the
// version in use; once a newer one has replaced that, the kernel refuses to bind it
// again, and the container cannot start (kubernetes/kubernetes#68211). To be called
// before Mounts, and released as soon as the container was started or was not; changes
// that come meanwhile are written then. It never blocks.
func (m *Mounter) Hold(p *v1.Pod, c *v1.Container) (release func()) {
	if !m.mountsPartOfLive(p, c) {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.live[p.UID]
	if l == nil {
		return func() {}
	}
	l.holds++
	return func() { m.unhold(p.UID, l) }
}

func (m *Mounter) unhold(uid pod.UID, l *livePod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.holds--; l.holds > 0 || !l.missed {
		return
	}
	l.missed = false
	if m.live[uid] == l {
		m.changedLocked(uid)
	}
}

// held says whether the pod's live volumes must stay as they are, and notes that there
// was something to write. The lock of the live volumes is held: who calls Hold and then Mounts finds
// that nothing is written from then on.
func (m *Mounter) held(l *livePod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.missed = l.missed || l.holds > 0
	return l.holds > 0
}

func (m *Mounter) mountsPartOfLive(p *v1.Pod, c *v1.Container) bool {
	for i := range c.VolumeMounts {
		mount := &c.VolumeMounts[i]
		if mount.SubPath == "" && mount.SubPathExpr == "" {
			continue
		}
		if v := volumeNamed(p, mount.Name); v != nil {
			if k := m.kindOf(v); k != nil && k.live {
				return true
			}
		}
	}
	return false
}
