package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Upstream's back-off of a volume that cannot be set up (goroutinemap,
// exponentialbackoff).
const (
	firstRefresh = 500 * time.Millisecond // doubles to
	lastRefresh  = 2*time.Minute + 2*time.Second
)

// livePod is a pod that has live volumes, from its first Ensure (or Follow) until
// it is torn down or released.
type livePod struct {
	pod       *v1.Pod                       // the newest version
	immutable map[pod.ObjectKey]*pod.Object // as its volumes have them
	holds     int                           // see Hold
	missed    bool                          // something changed while held

	// Of the goroutine that brings the volumes up to date; it ends when there is
	// nothing to do.
	changed chan struct{} // capacity 1: something changed since it last looked
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed at its end; nil: none is at work
}

// Changed says that something that the pod's volumes are made of has changed. It
// never blocks; the volumes follow beside the syncs: however often it is called
// meanwhile, they are then written once more, with what is newest. A pod whose
// volumes are not set up is none of its business. Errors become events of the pod,
// and what is mounted serves on.
func (m *Mounter) Changed(uid pod.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changedLocked(uid)
}

// Follow takes p as the newest version of a pod that has a sandbox, and Changed
// for it if it is another than before: labels may have changed, or podd was
// restarted. It never blocks, and must not be called once the pod's volumes are
// torn down or released. It does nothing after Stopping.
func (m *Mounter) Follow(p *v1.Pod) {
	m.followCSI(p)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ending[p.UID] {
		return
	}
	m.pods[p.UID] = p
	if l := m.live[p.UID]; l == nil || l.pod != p {
		m.registerLocked(p)
		m.changedLocked(p.UID)
	}
}

// Stopping says that the pod is being stopped: its volumes follow nothing any more, and
// nobody is told that what they are made of is gone. That of a pod that is removed goes
// with it, and what no container will start with needs no change, as for the kubelet
// (populator, findAndAddNewPods). It holds until TearDown, or the next Ensure. It never
// blocks, and cancels what is under way.
func (m *Mounter) Stopping(uid pod.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ending[uid] = true
	m.forgetLocked(uid, errPodGone)
}

// registerLocked notes a pod that has live volumes.
func (m *Mounter) registerLocked(p *v1.Pod) {
	if l := m.live[p.UID]; l != nil {
		l.pod = p
		return
	}
	for i := range p.Spec.Volumes {
		if k := m.kindOf(&p.Spec.Volumes[i]); k != nil && k.live {
			m.live[p.UID] = &livePod{pod: p, changed: make(chan struct{}, 1)}
			return
		}
	}
}

func (m *Mounter) changedLocked(uid pod.UID) {
	l := m.live[uid]
	if l == nil || m.stopping {
		return
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
	if l.done == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		l.cancel, l.done = cancel, make(chan struct{})
		go m.follow(ctx, l, l.done)
	}
}

// forgetLocked ends what is done for a pod's live volumes, and returns what is
// closed when it has ended.
func (m *Mounter) forgetLocked(uid pod.UID, why error) (done chan struct{}) {
	l := m.live[uid]
	if l == nil {
		return nil
	}
	delete(m.live, uid)
	if l.done != nil {
		l.cancel(why)
	}
	return l.done
}

// follow brings the pod's volumes up to date until nothing has changed since.
func (m *Mounter) follow(ctx context.Context, l *livePod, done chan struct{}) {
	defer close(done)
	delay := firstRefresh
	var again <-chan time.Time // after an attempt that failed
	for m.moreToFollow(l, again != nil) {
		select {
		case <-l.changed:
		case <-again:
		case <-ctx.Done():
			return
		}
		again = nil
		if m.bringUpToDate(ctx, l) {
			delay = firstRefresh
			continue
		}
		again = time.After(delay)
		delay = min(2*delay, lastRefresh)
	}
}

// moreToFollow says whether follow has anything to wait for; if not, the next
// change begins another.
func (m *Mounter) moreToFollow(l *livePod, again bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if again || len(l.changed) > 0 {
		return true
	}
	l.done = nil
	l.cancel(nil)
	return false
}

// bringUpToDate refreshes the pod's live volumes once; ok is false where trying
// again may help.
func (m *Mounter) bringUpToDate(ctx context.Context, l *livePod) (ok bool) {
	m.mu.Lock()
	o := &setUp{pod: l.pod, since: time.Now()}
	m.mu.Unlock()
	ok = true
	_ = m.inTurn(ctx, o, lockKey{pod: o.pod.UID, live: true}, func(ctx context.Context, o *setUp) error { // its error is the end of ctx
		if m.held(l) {
			return nil
		}
		for i := range o.pod.Spec.Volumes {
			v := &o.pod.Spec.Volumes[i]
			err := m.refreshOne(ctx, o, v)
			if err == nil {
				continue
			}
			if ctx.Err() != nil {
				return nil
			}
			m.tellStale(o.pod, v, err)
			_, static := errors.AsType[collectError](err)
			ok = ok && static
		}
		return nil
	})
	return ok
}

// refreshOne brings one volume up to date, if it is a live one that is set up, by
// this podd or an earlier one.
func (m *Mounter) refreshOne(ctx context.Context, o *setUp, v *v1.Volume) error {
	k := m.kindOf(v)
	if k == nil || !k.live || ctx.Err() != nil || safeName("volume name", v.Name) != nil {
		return nil
	}
	t := m.targetFor(o.pod, v, k)
	ready := m.isReady(o.pod.UID, v.Name)
	if l, isLive := k.driver.(*live); !ready && (!isLive || m.owes(o.pod.UID) || !l.found(t)) {
		return nil
	}
	m.setVolume(o, v.Name)
	err := k.refresh(ctx, t)
	m.metrics.observe(k.plugin, "volume_mount", o.since, err)
	if err == nil && !ready && ctx.Err() == nil {
		m.markReady(o.pod.UID, v.Name, k.plugin)
	}
	return err
}

// owes says that an earlier life of the pod is not removed yet.
func (m *Mounter) owes(uid pod.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, pending := m.pending[uid]
	return pending
}

// tellStale tells the pod that a volume serves on as it is, in upstream's words.
func (m *Mounter) tellStale(p *v1.Pod, v *v1.Volume, err error) {
	if m.options.Events != nil {
		m.options.Events.Event(p, v1.EventTypeWarning, "FailedMount", setUpFailed(v, err).Error())
	}
}

func setUpFailed(v *v1.Volume, err error) error {
	return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
}
