package volumes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

const (
	// atOnce is how long the first Ensure waits for the set-up that it began:
	// most take less than a millisecond, and then nobody has to come back.
	atOnce = 250 * time.Millisecond
	// longSetUp is how long a set-up counts as work. One that takes longer waits
	// for something, and must not keep others waiting with it.
	longSetUp = time.Second
	// overdue is when a pod is told that its volumes do not come (upstream's
	// podAttachAndMountTimeout).
	overdue = 2*time.Minute + 3*time.Second
	// parallelSetUps is how many are at work at a time.
	parallelSetUps = 16
)

var (
	errPodGone  = errors.New("the pod's volumes are no longer needed")
	errStopping = errors.New("podd is stopping")
)

// setUp is the set-up of one pod's volumes, beside the syncs.
type setUp struct {
	pod    *v1.Pod
	since  time.Time
	cancel context.CancelCauseFunc
	done   chan struct{} // closed at its end
	err    error         // how it ended; after done

	// Guarded by Mounter.mu.
	parts  []part        // by the index of the pod's volumes; none before they begin
	active int           // parts that have not ended
	idle   chan struct{} // closed when the last of them has
	again  chan int      // parts to begin again; has room for all
	waited bool          // somebody was told that it goes on
	news   bool          // a part has ended since
	tell   *time.Timer
}

// Ensure says whether every volume of the pod exists, and the pod's directory,
// and begins to set them up where they may not. It never waits long: for a
// moment after it has begun (atOnce, and while ctx lasts), and not at all while
// that goes on, whose end wakes the pod. A state that is not ready says what is
// waited for, and until when.
//
// Calling it again is cheap and changes nothing. Errors are *pod.ReasonError with
// FailedMount; they say which volume and why, all of them at once and in the pod's
// order, and trying again later is right: also while other volumes are still being set
// up, which goes on. A set-up that does not come to its end in two minutes is one too,
// and goes on. A pod that comes back while TearDown still owes the end
// of its last life waits for it: an emptyDir begins empty.
func (m *Mounter) Ensure(ctx context.Context, p *v1.Pod) (pod.VolumeState, error) {
	if err := safeName("pod UID", string(p.UID)); err != nil {
		return pod.VolumeState{}, pod.WithReason("FailedMount", err)
	}
	o, begun := m.begin(ctx, p)
	if o == nil {
		return pod.VolumeState{}, context.Cause(ctx)
	}
	if err := awaitMoment(ctx, begun); err != nil {
		return pod.VolumeState{}, err
	}
	return m.outcome(o)
}

// awaitMoment waits until all of begun are closed, but not for longer than atOnce. The
// error is ctx's cause.
func awaitMoment(ctx context.Context, begun []<-chan struct{}) error {
	if len(begun) == 0 {
		return nil
	}
	moment := time.NewTimer(atOnce)
	defer moment.Stop()
	for _, done := range begun {
		select {
		case <-done:
		case <-moment.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// begin returns the set-up of the pod that is under way, or whose end nobody was
// told of yet; otherwise it begins one. Of one under way, it begins again what has
// failed. begun are closed when what it began has ended. None is begun once ctx has
// ended: who ends it, and then says Stopping, is not overtaken.
func (m *Mounter) begin(ctx context.Context, p *v1.Pod) (o *setUp, begun []<-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return nil, nil
	}
	if o := m.setUps[p.UID]; o != nil {
		return o, o.againLocked()
	}
	// It outlives the sync that asked for it.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	o = &setUp{pod: p, since: time.Now(), cancel: cancel, done: make(chan struct{})}
	m.setUps[p.UID] = o
	m.pods[p.UID] = p
	delete(m.released, p.UID)
	delete(m.ending, p.UID)
	m.registerLocked(p)
	go m.work(ctx, o)
	return o, []<-chan struct{}{o.done}
}

// work carries a set-up out and wakes the pod, if it was told to wait.
func (m *Mounter) work(ctx context.Context, o *setUp) {
	defer o.cancel(nil)
	err := m.inTurn(ctx, o, lockKey{pod: o.pod.UID}, m.setUpAll)
	m.mu.Lock()
	o.err = err
	o.quietLocked()
	close(o.done)
	wake := o.waited && m.setUps[o.pod.UID] == o
	m.mu.Unlock()
	if wake && m.options.Waker != nil {
		m.options.Waker.Wake(o.pod.UID)
	}
}

// inTurn does the work with a place among the set-ups at work, and the lock.
func (m *Mounter) inTurn(ctx context.Context, o *setUp, lock lockKey, work func(context.Context, *setUp) error) error {
	select {
	case m.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	leave := sync.OnceFunc(func() { <-m.places })
	defer leave()
	defer time.AfterFunc(longSetUp, leave).Stop()
	unlock, err := m.take(ctx, lock)
	if err != nil {
		return err
	}
	defer unlock()
	m.setWorking(lock, o)
	defer m.setWorking(lock, nil)
	return work(ctx, o)
}

func (m *Mounter) setWorking(lock lockKey, o *setUp) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o == nil {
		delete(m.working, lock)
	} else {
		m.working[lock] = o
	}
}

// outcome is what came of a set-up so far; its end is told once.
func (m *Mounter) outcome(o *setUp) (pod.VolumeState, error) {
	m.mu.Lock()
	select {
	case <-o.done:
		defer m.mu.Unlock()
		if m.setUps[o.pod.UID] == o {
			delete(m.setUps, o.pod.UID)
		}
		return pod.VolumeState{Ready: o.err == nil}, o.err
	default:
	}
	o.waited, o.news = true, false
	missing, waits, errs := m.missingLocked(o.pod), o.waitsLocked(), o.failedLocked()
	m.mu.Unlock()
	late := o.since.Add(overdue)
	if !time.Now().Before(late) {
		// Upstream's words, of event and error.
		errs = append(errs, fmt.Errorf(
			"Unable to attach or mount volumes: unmounted volumes=%v, unattached volumes=[], failed to process volumes=[]: %w%s",
			missing, context.DeadlineExceeded, m.waitsFor(o.pod, waits, ": ")))
	}
	if len(errs) > 0 { // the rest goes on
		return pod.VolumeState{}, pod.WithReason("FailedMount", errors.Join(errs...))
	}
	return pod.VolumeState{Message: fmt.Sprintf("volumes are being set up: %v%s", missing, m.waitsFor(o.pod, waits, ", ")), RetryAt: late}, nil
}

// missingLocked names the pod's volumes that this Mounter has not set up.
func (m *Mounter) missingLocked(p *v1.Pod) []string {
	names := []string{}
	for i := range p.Spec.Volumes {
		if _, ok := m.ready[p.UID][p.Spec.Volumes[i].Name]; !ok {
			names = append(names, p.Spec.Volumes[i].Name)
		}
	}
	return names
}

// giveUp cancels the set-up of a pod's volumes, if one is under way, and what
// brings them up to date; whoever asks from now on begins another.
func (m *Mounter) giveUp(uid pod.UID, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetLocked(uid, why)
	if o := m.setUps[uid]; o != nil {
		delete(m.setUps, uid)
		o.cancel(why)
	}
}

// giveUpAll is giveUp for every pod; it returns when all have ended, or after
// patience.
func (m *Mounter) giveUpAll() {
	m.mu.Lock()
	m.stopping = true
	var ends []chan struct{}
	for uid := range m.live {
		if done := m.forgetLocked(uid, errStopping); done != nil {
			ends = append(ends, done)
		}
	}
	for uid, o := range m.setUps {
		delete(m.setUps, uid)
		o.cancel(errStopping)
		ends = append(ends, o.done)
	}
	m.mu.Unlock()
	over := time.NewTimer(patience)
	defer over.Stop()
	for _, done := range ends {
		select {
		case <-done:
		case <-over.C:
			return
		}
	}
}
