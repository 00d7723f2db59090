package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"podd/internal/pod"
)

// lockKey is what a lock is of: a pod, or its live volumes alone. Who has the pod's may
// hang with one of its volumes, and the live ones are written meanwhile. Whoever takes
// both takes the pod's first.
type lockKey struct {
	pod  pod.UID
	live bool
}

// podLock serialises the calls for one pod, or for its live volumes; it is dropped by
// its last user.
type podLock struct {
	held  chan struct{} // capacity 1: full while somebody has it
	users int           // guarded by Mounter.mu
}

// lock takes the pod's lock and returns the function that releases it; the error is
// ctx's cause.
func (m *Mounter) lock(ctx context.Context, uid pod.UID) (unlock func(), err error) {
	return m.take(ctx, lockKey{pod: uid})
}

// lockLive is lock for the pod's live volumes.
func (m *Mounter) lockLive(ctx context.Context, uid pod.UID) (unlock func(), err error) {
	return m.take(ctx, lockKey{pod: uid, live: true})
}

// lockAll takes both locks: nobody else is at work for the pod.
func (m *Mounter) lockAll(ctx context.Context, uid pod.UID) (unlock func(), err error) {
	unlockPod, err := m.lock(ctx, uid)
	if err != nil {
		return nil, err
	}
	unlockLive, err := m.lockLive(ctx, uid)
	if err != nil {
		unlockPod()
		return nil, err
	}
	return func() { unlockLive(); unlockPod() }, nil
}

func (m *Mounter) take(ctx context.Context, of lockKey) (unlock func(), err error) {
	m.mu.Lock()
	l := m.locks[of]
	if l == nil {
		l = &podLock{held: make(chan struct{}, 1)}
		m.locks[of] = l
	}
	l.users++
	m.mu.Unlock()
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(m.locks, of)
		}
	}
	select {
	case l.held <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
	return func() {
		<-l.held
		leave()
	}, nil
}

// patience is how long a set-up may take to notice that its pod is gone. One that
// hangs in the kernel never does.
const patience = time.Second

var errPatience = errors.New("it does not finish")

// takeOver cancels the set-up of the pod's volumes in progress and takes the pod's
// locks. A set-up that does not finish within patience is a hungError.
func (m *Mounter) takeOver(ctx context.Context, uid pod.UID) (unlock func(), err error) {
	m.giveUp(uid, errPodGone)
	for {
		within, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
		unlock, err := m.lockAll(within, uid)
		cancel()
		if !errors.Is(err, errPatience) {
			return unlock, err
		}
		if hung := m.hung(uid); hung != nil { // anything else finishes
			return nil, hung
		}
	}
}

// hungError is a set-up that does not come to its end: podd itself holds what it is
// at. Nothing of the pod may be deleted meanwhile.
type hungError struct {
	waits []string // what it is at, since when, and behind which mount
}

func (e *hungError) Error() string {
	return fmt.Sprintf("%s: process %d (podd) holds it until whoever serves that answers, or is ended", strings.Join(e.waits, "; "), os.Getpid())
}

// hung is the set-up that has the pod's lock, or that of its live volumes; nil for none.
func (m *Mounter) hung(uid pod.UID) error {
	m.mu.Lock()
	o := cmp.Or(m.working[lockKey{pod: uid}], m.working[lockKey{pod: uid, live: true}])
	if o == nil {
		m.mu.Unlock()
		return nil
	}
	waits := o.waitsLocked()
	m.mu.Unlock()
	hung := &hungError{}
	for _, w := range waits {
		hung.waits = append(hung.waits, fmt.Sprintf("the set-up of volume %q, started at %s, hangs%s", w.volume, w.since.Format(time.TimeOnly), m.behind(o.pod, w.volume)))
	}
	if len(waits) == 0 { // before the first
		hung.waits = []string{fmt.Sprintf("the set-up of the pod's volumes, started at %s, hangs", o.since.Format(time.TimeOnly))}
	}
	return hung
}
