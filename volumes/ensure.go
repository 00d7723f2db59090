package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	volume string // that is being set up
	waited bool   // somebody was told that it goes on
}

// Ensure says whether every volume of the pod exists, and the pod's directory,
// and begins to set them up where they may not. It never waits long: for a
// moment after it has begun (atOnce, and while ctx lasts), and not at all while
// that goes on, whose end wakes the pod. A state that is not ready says what is
// waited for, and until when.
//
// Calling it again is cheap and changes nothing. Errors are *pod.ReasonError with
// FailedMount; they say which volume and why, all of them at once, and trying
// again later is right. A set-up that does not come to its end in two minutes is
// one too, and goes on. A pod that comes back while TearDown still owes the end
// of its last life waits for it: an emptyDir begins empty.
func (m *Mounter) Ensure(ctx context.Context, p *v1.Pod) (pod.VolumeState, error) {
	if err := safeName("pod UID", string(p.UID)); err != nil {
		return pod.VolumeState{}, pod.WithReason("FailedMount", err)
	}
	if ctx.Err() != nil {
		return pod.VolumeState{}, context.Cause(ctx)
	}
	o, begun := m.begin(ctx, p)
	if begun {
		moment := time.NewTimer(atOnce)
		defer moment.Stop()
		select {
		case <-o.done:
		case <-moment.C:
		case <-ctx.Done():
			return pod.VolumeState{}, context.Cause(ctx)
		}
	}
	return m.outcome(o)
}

// begin returns the set-up of the pod that is under way, or whose end nobody was
// told of yet; otherwise it begins one.
func (m *Mounter) begin(ctx context.Context, p *v1.Pod) (o *setUp, begun bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.setUps[p.UID]; o != nil {
		return o, false
	}
	// It outlives the sync that asked for it.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	o = &setUp{pod: p, since: time.Now(), cancel: cancel, done: make(chan struct{})}
	m.setUps[p.UID] = o
	delete(m.released, p.UID)
	m.registerLocked(p)
	go m.work(ctx, o)
	return o, true
}

// work carries a set-up out and wakes the pod, if it was told to wait.
func (m *Mounter) work(ctx context.Context, o *setUp) {
	defer o.cancel(nil)
	err := m.inTurn(ctx, o, m.setUpAll)
	m.mu.Lock()
	o.err = err
	close(o.done)
	wake := o.waited && m.setUps[o.pod.UID] == o
	m.mu.Unlock()
	if wake && m.options.Waker != nil {
		m.options.Waker.Wake(o.pod.UID)
	}
}

// inTurn does the work with a place among the set-ups at work, and the pod's lock.
func (m *Mounter) inTurn(ctx context.Context, o *setUp, work func(context.Context, *setUp) error) error {
	select {
	case m.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	leave := sync.OnceFunc(func() { <-m.places })
	defer leave()
	defer time.AfterFunc(longSetUp, leave).Stop()
	unlock, err := m.lock(ctx, o.pod.UID)
	if err != nil {
		return err
	}
	defer unlock()
	m.setWorking(o.pod.UID, o)
	defer m.setWorking(o.pod.UID, nil)
	return work(ctx, o)
}

// setVolume notes which volume a set-up is at.
func (m *Mounter) setVolume(o *setUp, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.volume = name
}

func (m *Mounter) setWorking(uid pod.UID, o *setUp) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o == nil {
		delete(m.working, uid)
	} else {
		m.working[uid] = o
	}
}

// outcome is what came of a set-up so far; its end is told once.
func (m *Mounter) outcome(o *setUp) (pod.VolumeState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-o.done:
		if m.setUps[o.pod.UID] == o {
			delete(m.setUps, o.pod.UID)
		}
		return pod.VolumeState{Ready: o.err == nil}, o.err
	default:
	}
	o.waited = true
	late := o.since.Add(overdue)
	missing := m.missingLocked(o.pod)
	if !time.Now().Before(late) {
		// Upstream's words, of event and error.
		return pod.VolumeState{}, pod.WithReason("FailedMount", fmt.Errorf(
			"Unable to attach or mount volumes: unmounted volumes=%v, unattached volumes=[], failed to process volumes=[]: %w", missing, context.DeadlineExceeded))
	}
	return pod.VolumeState{Message: fmt.Sprintf("volumes are being set up: %v", missing), RetryAt: late}, nil
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

// setUpAll does the work; the pod's lock is held.
func (m *Mounter) setUpAll(ctx context.Context, o *setUp) error {
	p := o.pod
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := m.finishUnmount(ctx, p.UID); err != nil {
		return pod.WithReason("FailedMount", err)
	}
	for _, dir := range []string{m.dirs.Pod(p.UID), m.dirs.Containers(p.UID)} {
		if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return pod.WithReason("FailedMount", fmt.Errorf("make the pod's directory: %w", err))
		}
	}
	var errs []error
	for i := range p.Spec.Volumes {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v := &p.Spec.Volumes[i]
		m.setVolume(o, v.Name)
		if err := m.setUpOne(ctx, p, v); err != nil {
			errs = append(errs, setUpFailed(v, err))
		}
	}
	return pod.WithReason("FailedMount", errors.Join(errs...))
}

// setUpOne sets one volume up, or refreshes it.
func (m *Mounter) setUpOne(ctx context.Context, p *v1.Pod, v *v1.Volume) error {
	if err := safeName("volume name", v.Name); err != nil {
		return err
	}
	k, t, err := m.find(p, v)
	if err != nil {
		return err
	}
	start := time.Now()
	if m.isReady(p.UID, v.Name) {
		err := k.refresh(ctx, t)
		if err != nil {
			m.metrics.observe(k.plugin, "volume_mount", start, err)
		}
		if err != nil && k.live && ctx.Err() == nil {
			m.Changed(p.UID) // which tells of it, and tries again
			return nil
		}
		return err
	}
	if t.bound != nil {
		if err := m.mayUse(k, t); err != nil {
			return err
		}
	}
	err = k.setUp(ctx, t)
	m.metrics.observe(k.plugin, "volume_mount", start, err)
	if err == nil && ctx.Err() == nil { // what was given up belongs to no life of the pod
		m.markReady(p.UID, v.Name, k.plugin)
		m.markBound(t)
	}
	return err
}

func (m *Mounter) isReady(uid pod.UID, volume string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.ready[uid][volume]
	return ok
}

func (m *Mounter) markReady(uid pod.UID, volume, plugin string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready[uid] == nil {
		m.ready[uid] = map[string]string{}
	}
	m.ready[uid][volume] = plugin
}

// markBound notes what a volume is bound to, for as long as it is ready.
func (m *Mounter) markBound(t target) {
	if t.bound == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bound[t.pod.UID] == nil {
		m.bound[t.pod.UID] = map[string]pod.BoundVolume{}
	}
	m.bound[t.pod.UID][t.volume.Name] = *t.bound
}

// unmarkLocked forgets what is ready of a pod.
func (m *Mounter) unmarkLocked(uid pod.UID) {
	delete(m.ready, uid)
	delete(m.bound, uid)
}
