package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/wake"
)

// refreshBackoff is upstream's backoff for volumes that cannot be set up (goroutinemap,
// exponentialbackoff).
var refreshBackoff = wake.Backoff{Initial: 500 * time.Millisecond, Max: 2*time.Minute + 2*time.Second}

// liveUpdates updates the live volumes of one pod, from its first Ensure (or Follow) until
// it is torn down or released.
type liveUpdates struct {
	pod       *v1.Pod                       // the newest version
	immutable map[pod.ObjectKey]*pod.Object // as its volumes have them
	holds     int                           // see Hold
	missed    bool                          // something changed while held

	// The goroutine that updates the volumes. It ends when there is nothing to do.
	changed wake.Signal // something changed since the last update
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed at its end; nil: it does not run
}

// Changed says that an object that the pod's volumes name has become known or has changed.
// It never blocks: live volumes are updated in the background with the newest content, once
// for any number of calls meanwhile. Volumes that are not set up are ignored. Errors become
// events of the pod, and the volume keeps its last content. CSI volumes of an earlier podd
// are adopted once their claim and their driver's CSIDriver are known.
func (m *Mounter) Changed(uid pod.UID) {
	m.mu.Lock()
	m.notifyChangedLocked(uid)
	known := *m.stateOf(uid)
	over := known.terminating || known.released || m.stopping
	m.mu.Unlock()
	if known.pod != nil && !over {
		m.adoptCSI(known.pod)
	}
}

// Follow records p as the newest version of a pod that has a sandbox. If it differs
// from the last, it is also Changed: labels may have changed, or podd was restarted. It
// never blocks, and must not be called once the pod's volumes are torn down or released.
// After Stopping it does nothing.
func (m *Mounter) Follow(p *v1.Pod) {
	m.adoptCSI(p)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stateOf(p.UID).terminating {
		return
	}
	m.updateState(p.UID, func(known *podVolumes) { known.pod = p })
	if l := m.stateOf(p.UID).live; l == nil || l.pod != p {
		m.registerLiveLocked(p)
		m.notifyChangedLocked(p.UID)
	}
}

// Stopping says that the pod is being stopped: its live volumes are no longer updated, and
// missing objects are no longer reported. Objects are often removed together with their
// pod, and the kubelet does not update the volumes of such pods either (populator,
// findAndAddNewPods). This lasts until TearDown or the next Ensure. It never blocks, and it
// cancels updates in progress.
func (m *Mounter) Stopping(uid pod.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.updateState(uid, func(p *podVolumes) { p.terminating = true })
	m.stopUpdatesLocked(uid, errPodGone)
}

// registerLiveLocked records a pod that has live volumes.
func (m *Mounter) registerLiveLocked(p *v1.Pod) {
	if l := m.stateOf(p.UID).live; l != nil {
		l.pod = p
		return
	}
	for i := range p.Spec.Volumes {
		if k := m.kindOf(&p.Spec.Volumes[i]); k != nil && k.live {
			m.updateState(p.UID, func(known *podVolumes) { known.live = &liveUpdates{pod: p, changed: wake.New()} })
			return
		}
	}
}

func (m *Mounter) notifyChangedLocked(uid pod.UID) {
	l := m.stateOf(uid).live
	if l == nil || m.stopping {
		return
	}
	l.changed.Notify()
	if l.done == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		l.cancel, l.done = cancel, make(chan struct{})
		go m.runUpdates(ctx, l, l.done)
	}
}

// stopUpdatesLocked ends the updates of a pod's live volumes. The returned channel, nil if
// none are in progress, is closed when they have ended.
func (m *Mounter) stopUpdatesLocked(uid pod.UID, why error) (done chan struct{}) {
	l := m.stateOf(uid).live
	if l == nil {
		return nil
	}
	m.updateState(uid, func(p *podVolumes) { p.live = nil })
	if l.done != nil {
		l.cancel(why)
	}
	return l.done
}

// runUpdates updates the pod's volumes until nothing has changed since.
func (m *Mounter) runUpdates(ctx context.Context, l *liveUpdates, done chan struct{}) {
	defer close(done)
	delay := time.Duration(0)
	var again time.Time // after an attempt that failed
	for m.hasMoreUpdates(l, !again.IsZero()) {
		if !wake.Until(ctx, l.changed, again) {
			return
		}
		if m.refreshAll(ctx, l) {
			delay, again = 0, time.Time{}
			continue
		}
		delay = refreshBackoff.Next(delay)
		again = time.Now().Add(delay)
	}
}

// hasMoreUpdates says whether runUpdates has anything to wait for; if not, the next change
// starts another goroutine.
func (m *Mounter) hasMoreUpdates(l *liveUpdates, again bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if again || len(l.changed) > 0 {
		return true
	}
	l.done = nil
	l.cancel(nil)
	return false
}

// refreshAll refreshes the pod's live volumes once; ok is false if a retry may help.
func (m *Mounter) refreshAll(ctx context.Context, l *liveUpdates) (ok bool) {
	m.mu.Lock()
	o := &podSetUp{pod: l.pod, since: time.Now()}
	m.mu.Unlock()
	ok = true
	_ = m.withSlotAndLock(ctx, o, lockKey{pod: o.pod.UID, live: true}, func(ctx context.Context, o *podSetUp) error { // fails only if ctx ends
		if m.skipWhileHeld(l) {
			return nil
		}
		used := pod.UsedVolumes(o.pod)
		for i := range o.pod.Spec.Volumes {
			v := &o.pod.Spec.Volumes[i]
			if !used[v.Name] {
				continue
			}
			err := m.refreshOne(ctx, o, v)
			if err == nil {
				continue
			}
			if ctx.Err() != nil {
				return nil
			}
			if pod.IsObjectPending(err) { // the apiserver's answer calls Changed again
				continue
			}
			m.reportStale(o.pod, v, err)
			_, static := errors.AsType[collectError](err)
			ok = ok && static
		}
		return nil
	})
	return ok
}

// refreshOne refreshes one volume, if it is a live one that this podd or an earlier one
// has set up.
func (m *Mounter) refreshOne(ctx context.Context, o *podSetUp, v *v1.Volume) error {
	k := m.kindOf(v)
	if k == nil || !k.live || ctx.Err() != nil || safeName("volume name", v.Name) != nil {
		return nil
	}
	t := m.targetFor(o.pod, v, k)
	ready := m.isReady(o.pod.UID, v.Name)
	if !ready && (m.hasPendingUnmount(o.pod.UID) || !k.isSetUp(t)) {
		return nil
	}
	m.setCurrentVolume(o, v.Name)
	err := k.refresh(ctx, t)
	if !pod.IsObjectPending(err) {
		m.metrics.observe(k.plugin, "volume_mount", o.since, err)
	}
	if err == nil && !ready && ctx.Err() == nil {
		m.markReady(o.pod.UID, v.Name, k.plugin)
	}
	return err
}

// hasPendingUnmount says whether an earlier run of the pod left something that is not
// removed yet.
func (m *Mounter) hasPendingUnmount(uid pod.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stateOf(uid).pending != nil
}

// reportStale records an event, in upstream's words, that a volume could not be updated.
func (m *Mounter) reportStale(p *v1.Pod, v *v1.Volume, err error) {
	if m.options.Events != nil {
		m.options.Events.Event(p, v1.EventTypeWarning, reasonFailedMount, setUpFailed(v, err).Error())
	}
}

func setUpFailed(v *v1.Volume, err error) error {
	operation := "MountVolume.SetUp"
	if pod.ReasonOf(err, "") == reasonFailedMap {
		operation = "MapVolume.SetUpDevice"
	}
	return fmt.Errorf("%s failed for volume %q : %w", operation, v.Name, err)
}

// The kubelet's reasons of events about volumes that cannot be set up: for block devices
// (volumeMode Block), and for all others.
const (
	reasonFailedMap   = "FailedMapVolume"
	reasonFailedMount = "FailedMount"
)

// reasonOf returns the reason for several failures of a pod's volumes: FailedMapVolume only if
// all are of block devices.
func reasonOf(failures []error) string {
	if len(failures) == 0 {
		return ""
	}
	for _, err := range failures {
		if pod.ReasonOf(err, reasonFailedMount) != reasonFailedMap {
			return reasonFailedMount
		}
	}
	return reasonFailedMap
}
