package volumes

import (
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Hold suspends updates of the pod's live volumes until release is called, if the
// container mounts a subPath of one. The subPath is a bind mount of a file of the
// current version; once a newer version has replaced it, the kernel rejects another
// bind of it and the container cannot start (kubernetes/kubernetes#68211). Call it
// before Mounts, and release as soon as the container has started or failed to; changes
// that were held are written then. It never blocks.
func (m *Mounter) Hold(p *v1.Pod, c *v1.Container) (release func()) {
	if !m.mountsLiveSubPath(p, c) {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.stateOf(p.UID).live
	if l == nil {
		return func() {}
	}
	l.holds++
	return func() { m.releaseHold(p.UID, l) }
}

func (m *Mounter) releaseHold(uid pod.UID, l *liveUpdates) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.holds--; l.holds > 0 || !l.missed {
		return
	}
	l.missed = false
	if m.stateOf(uid).live == l {
		m.notifyChangedLocked(uid)
	}
}

// skipWhileHeld says whether updates of the pod's live volumes are suspended, and if so records
// that one was skipped. The lock of the live volumes is held, so after Hold and then Mounts
// nothing is written.
func (m *Mounter) skipWhileHeld(l *liveUpdates) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.missed = l.missed || l.holds > 0
	return l.holds > 0
}

func (m *Mounter) mountsLiveSubPath(p *v1.Pod, c *v1.Container) bool {
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
