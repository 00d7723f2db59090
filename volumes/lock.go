package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"podd/internal/pod"
)

// podLock serialises the calls for one pod; it goes with its last user.
type podLock struct {
	held  chan struct{} // capacity 1: full while somebody has it
	users int           // guarded by Mounter.mu
}

// lock takes the pod's lock and returns what gives it back; the error is ctx's
// cause.
func (m *Mounter) lock(ctx context.Context, uid pod.UID) (unlock func(), err error) {
	m.mu.Lock()
	l := m.locks[uid]
	if l == nil {
		l = &podLock{held: make(chan struct{}, 1)}
		m.locks[uid] = l
	}
	l.users++
	m.mu.Unlock()
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(m.locks, uid)
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

// patience is how long a set-up gets to notice that its pod is gone. One that
// hangs in the kernel never does.
const patience = time.Second

var errPatience = errors.New("it does not finish")

// takeOver gives up the set-up of the pod's volumes that is under way and takes
// the pod's lock. A set-up that does not end within patience is a hungError.
func (m *Mounter) takeOver(ctx context.Context, uid pod.UID) (unlock func(), err error) {
	m.giveUp(uid, errPodGone)
	for {
		within, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
		unlock, err := m.lock(within, uid)
		cancel()
		if !errors.Is(err, errPatience) {
			return unlock, err
		}
		if hung := m.hung(uid); hung != nil { // anything else comes to its end
			return nil, hung
		}
	}
}

// hungError is a set-up that goes on although its pod is gone. Nothing of the
// pod may be deleted meanwhile.
type hungError struct {
	volume string // empty for what comes before the first
	since  time.Time
}

func (e *hungError) Error() string {
	what := "the set-up of the pod's volumes"
	if e.volume != "" {
		what = fmt.Sprintf("the set-up of volume %q", e.volume)
	}
	return fmt.Sprintf("%s, started at %s, hangs", what, e.since.Format(time.TimeOnly))
}

// hung is the set-up that has the pod's lock; nil for none.
func (m *Mounter) hung(uid pod.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.working[uid]; o != nil {
		return &hungError{volume: o.volume, since: o.since}
	}
	return nil
}
