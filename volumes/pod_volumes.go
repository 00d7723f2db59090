package volumes

import (
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// podVolumes is what a Mounter knows about one pod. The zero value is an unknown pod.
// Mounter.mu guards it. Code that sets volumes up, mounts or unmounts holds one of
// Mounter.locks instead, and never both.
type podVolumes struct {
	pod   *v1.Pod                    // set up or followed, for events
	setUp *podSetUp                  // in progress, or ended with a result not yet returned by Ensure
	ready map[string]string          // volume name → plugin, set up by this Mounter
	bound map[string]pod.BoundVolume // what ready volumes with a claim are bound to
	live  *liveUpdates               // for a pod with live volumes
	// released: Release was called, and nothing is in use. terminating: Stopping was called, and
	// live volumes are no longer updated.
	released, terminating bool
	pending               *PendingUnmount
	// onceRemoved are the callbacks that wait for the end of the pending unmount.
	onceRemoved []func()
}

// isZero says that nothing is known about the pod.
func (p *podVolumes) isZero() bool {
	return p.pod == nil && p.setUp == nil && len(p.ready)+len(p.bound)+len(p.onceRemoved) == 0 &&
		p.live == nil && !p.released && !p.terminating && p.pending == nil
}

// stateOf returns what is known about a pod, for reading only. The lock is held.
func (m *Mounter) stateOf(uid pod.UID) *podVolumes {
	if p := m.pods[uid]; p != nil {
		return p
	}
	return &podVolumes{}
}

// updateState changes what is known about a pod. The lock is held.
func (m *Mounter) updateState(uid pod.UID, change func(p *podVolumes)) {
	p := m.stateOf(uid)
	change(p)
	if p.isZero() {
		delete(m.pods, uid)
	} else {
		m.pods[uid] = p
	}
}
