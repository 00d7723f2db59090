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

// lockKey names a lock: a pod's, that of the pod's live volumes, or that of AbortRequests.
// The holder of a pod's lock may hang with one of the pod's volumes; the live ones are
// updated meanwhile. A caller that takes both takes the pod's first.
type lockKey struct {
	pod    pod.UID
	live   bool
	aborts bool
}

// lock takes the pod's lock and returns the function that releases it; the error is
// ctx's cause.
func (m *Mounter) lock(ctx context.Context, uid pod.UID) (unlock func(), err error) {
	return m.locks.Lock(ctx, lockKey{pod: uid})
}

// lockLive is lock for the pod's live volumes.
func (m *Mounter) lockLive(ctx context.Context, uid pod.UID) (unlock func(), err error) {
	return m.locks.Lock(ctx, lockKey{pod: uid, live: true})
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

// hangTimeout is how long a canceled setup may take to return; after that, it counts as
// hung. A setup that hangs in the kernel does not return.
const hangTimeout = time.Second

var errHangTimeout = errors.New("it does not finish")

// cancelAndLock cancels the setup of the pod's volumes in progress and takes the pod's
// locks. If the setup does not return within hangTimeout, the error is a hungError.
func (m *Mounter) cancelAndLock(ctx context.Context, uid pod.UID) (unlock func(), err error) {
	m.cancelWork(uid, errPodGone)
	m.awaitAborts(ctx, uid)
	for {
		within, cancel := context.WithTimeoutCause(ctx, hangTimeout, errHangTimeout)
		unlock, err := m.lockAll(within, uid)
		cancel()
		if !errors.Is(err, errHangTimeout) {
			return unlock, err
		}
		if hung := m.hung(uid); hung != nil { // anything else finishes
			return nil, hung
		}
	}
}

// awaitAborts waits, for hangTimeout at most, for the end of AbortRequests, which keeps
// mounts of the pod busy for moments.
func (m *Mounter) awaitAborts(ctx context.Context, uid pod.UID) {
	within, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	if unlock, err := m.locks.Lock(within, lockKey{pod: uid, aborts: true}); err == nil {
		unlock()
	}
}

// hungError is a setup that does not return, so podd itself holds the volume. None of the
// pod's files may be deleted meanwhile.
type hungError struct {
	setUps []string // which volumes, since when, and behind which mounts
}

func (e *hungError) Error() string {
	return fmt.Sprintf("%s: process %d (podd) holds it until its server responds or is stopped", strings.Join(e.setUps, "; "), os.Getpid())
}

// hung returns a hungError if a setup holds the pod's lock, or that of its live volumes,
// or nil.
func (m *Mounter) hung(uid pod.UID) error {
	m.mu.Lock()
	o := cmp.Or(m.lockHolders[lockKey{pod: uid}], m.lockHolders[lockKey{pod: uid, live: true}])
	if o == nil {
		m.mu.Unlock()
		return nil
	}
	pending := o.pendingVolumesLocked()
	m.mu.Unlock()
	hung := &hungError{}
	for _, v := range pending {
		hung.setUps = append(hung.setUps, fmt.Sprintf("the setup of volume %q, started at %s, hangs%s", v.volume, v.since.Format(time.TimeOnly), m.describeMount(o.pod, v.volume)))
	}
	if len(pending) == 0 { // before the first volume
		hung.setUps = []string{fmt.Sprintf("the setup of the pod's volumes, started at %s, hangs", o.since.Format(time.TimeOnly))}
	}
	return hung
}
