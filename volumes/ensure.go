package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/slots"
)

const (
	// ensureWait is how long the first Ensure waits for the setup that it started.
	// Most take less than a millisecond, which saves another sync.
	ensureWait = 250 * time.Millisecond
	// longSetUp is how long a setup keeps its slot. A longer one waits for something
	// external and must not delay other pods.
	longSetUp = time.Second
	// setUpTimeout is when Ensure reports a setup in progress as an error (upstream's
	// podAttachAndMountTimeout).
	setUpTimeout = 2*time.Minute + 3*time.Second
	// parallelSetUps bounds the setups in progress.
	parallelSetUps = 16
)

var (
	errPodGone  = errors.New("the pod's volumes are no longer needed")
	errStopping = errors.New("podd is stopping")
)

// podSetUp is the setup of one pod's volumes, in the background.
type podSetUp struct {
	pod    *v1.Pod
	since  time.Time
	cancel context.CancelCauseFunc
	done   chan struct{} // closed at its end
	err    error         // valid once done is closed

	// Guarded by Mounter.mu.
	volumes         []volumeSetUp // by index of the pod's volumes; nil before they start
	active          int           // volumes whose setup has not ended
	allDone         chan struct{} // closed when the last volume's setup has ended
	retries         chan int      // volumes to set up again; has room for all
	reportedPending bool          // Ensure has returned while it was in progress
	progressed      bool          // a volume's setup has ended since
	wakeTimer       *time.Timer   // see endVolumeSetUp
}

// Ensure says whether the pod's directory and all volumes that its containers use
// (pod.UsedVolumes) are set up, and starts to set them up if they are not. It waits briefly
// (ensureWait, or until ctx ends) for a setup that it started. It does not wait for a setup
// that was in progress already, which wakes the pod when it ends. A state that is not ready
// says what it waits for, and until when.
//
// Calling it again is cheap and changes nothing. Errors are *pod.ReasonError with
// FailedMount. They name every volume that failed and why, in the pod's order, and may
// be retried later, even while other volumes are still being set up. A setup that has
// not ended within two minutes is an error, too, but continues. If the pod has a
// pending unmount, that is finished first: an emptyDir starts empty.
func (m *Mounter) Ensure(ctx context.Context, p *v1.Pod) (pod.VolumeState, error) {
	if err := safeName("pod UID", string(p.UID)); err != nil {
		return pod.VolumeState{}, pod.WithReason(reasonFailedMount, err)
	}
	o, begun := m.startOrJoin(ctx, p)
	if o == nil {
		return pod.VolumeState{}, context.Cause(ctx)
	}
	if err := awaitBriefly(ctx, begun); err != nil {
		return pod.VolumeState{}, err
	}
	return m.outcome(o)
}

// awaitBriefly waits until all of begun are closed, for at most ensureWait. The error
// is ctx's cause.
func awaitBriefly(ctx context.Context, begun []<-chan struct{}) error {
	if len(begun) == 0 {
		return nil
	}
	moment := time.NewTimer(ensureWait)
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

// startOrJoin returns the pod's setup if it is in progress or its result was not returned yet,
// and starts one otherwise. If the setup is in progress, it retries the volumes that failed.
// The begun channels are closed when the work that it started has ended. It starts nothing
// once ctx has ended, so that a caller can cancel ctx and then call Stopping.
func (m *Mounter) startOrJoin(ctx context.Context, p *v1.Pod) (o *podSetUp, begun []<-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return nil, nil
	}
	if o := m.stateOf(p.UID).setUp; o != nil {
		return o, o.retryFailedLocked()
	}
	// The setup outlives the sync that started it.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	o = &podSetUp{pod: p, since: time.Now(), cancel: cancel, done: make(chan struct{})}
	m.updateState(p.UID, func(known *podVolumes) {
		known.pod, known.setUp, known.released, known.terminating = p, o, false, false
	})
	m.registerLiveLocked(p)
	go m.runSetUp(ctx, o)
	return o, []<-chan struct{}{o.done}
}

// runSetUp performs a setup and wakes the pod if it was told to wait.
func (m *Mounter) runSetUp(ctx context.Context, o *podSetUp) {
	defer o.cancel(nil)
	err := m.withSlotAndLock(ctx, o, lockKey{pod: o.pod.UID}, m.setUpPod)
	m.mu.Lock()
	o.err = err
	o.stopWakeTimerLocked()
	close(o.done)
	wake := o.reportedPending && m.stateOf(o.pod.UID).setUp == o
	m.mu.Unlock()
	if wake && m.options.Waker != nil {
		m.options.Waker.Wake(o.pod.UID)
	}
}

// withSlotAndLock does the work with one of the slots and the lock.
func (m *Mounter) withSlotAndLock(ctx context.Context, o *podSetUp, lock lockKey, work func(context.Context, *podSetUp) error) error {
	leave, err := m.slots.Acquire(ctx, slots.Rest{})
	if err != nil {
		return err
	}
	defer leave()
	unlock, err := m.locks.Lock(ctx, lock)
	if err != nil {
		return err
	}
	defer unlock()
	m.setLockHolder(lock, o)
	defer m.setLockHolder(lock, nil)
	return work(ctx, o)
}

func (m *Mounter) setLockHolder(lock lockKey, o *podSetUp) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o == nil {
		delete(m.lockHolders, lock)
	} else {
		m.lockHolders[lock] = o
	}
}

// outcome returns the result of a setup so far; its final result is returned once.
func (m *Mounter) outcome(o *podSetUp) (pod.VolumeState, error) {
	m.mu.Lock()
	select {
	case <-o.done:
		defer m.mu.Unlock()
		m.forgetSetUpLocked(o)
		return pod.VolumeState{Ready: o.err == nil}, o.err
	default:
	}
	o.reportedPending, o.progressed = true, false
	missing, pending, errs := m.missingLocked(o.pod), o.pendingVolumesLocked(), o.failedLocked()
	m.mu.Unlock()
	late := o.since.Add(setUpTimeout)
	if !time.Now().Before(late) {
		// Upstream's wording of the event and the error.
		errs = append(errs, fmt.Errorf(
			"Unable to attach or mount volumes: unmounted volumes=%v, unattached volumes=[], failed to process volumes=[]: %w%s",
			missing, context.DeadlineExceeded, m.describePending(o.pod, pending, ": ")))
	}
	if len(errs) > 0 { // the other volumes continue
		return pod.VolumeState{}, pod.WithReason(reasonOf(errs), errors.Join(errs...))
	}
	return pod.VolumeState{Message: fmt.Sprintf("volumes are being set up: %v%s", missing, m.describePending(o.pod, pending, ", ")), RetryAt: late}, nil
}

// forgetSetUpLocked forgets a setup, unless another has taken its place. The lock is held.
func (m *Mounter) forgetSetUpLocked(o *podSetUp) {
	m.updateState(o.pod.UID, func(p *podVolumes) {
		if p.setUp == o {
			p.setUp = nil
		}
	})
}

// missingLocked names the volumes that the pod's containers use and this Mounter has not
// set up.
func (m *Mounter) missingLocked(p *v1.Pod) []string {
	names, used := []string{}, pod.UsedVolumes(p)
	for i := range p.Spec.Volumes {
		name := p.Spec.Volumes[i].Name
		if _, ok := m.stateOf(p.UID).ready[name]; !ok && used[name] {
			names = append(names, name)
		}
	}
	return names
}

// cancelWork cancels the setup of a pod's volumes that is in progress, if any, and the
// updates of its live volumes. The next Ensure starts anew.
func (m *Mounter) cancelWork(uid pod.UID, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopUpdatesLocked(uid, why)
	if o := m.stateOf(uid).setUp; o != nil {
		m.forgetSetUpLocked(o)
		o.cancel(why)
	}
}

// cancelAllWork is cancelWork for every pod. It waits until all have ended, for at most
// hangTimeout.
func (m *Mounter) cancelAllWork() {
	m.mu.Lock()
	m.stopping = true
	var ends []chan struct{}
	for uid, p := range m.pods {
		if done := m.stopUpdatesLocked(uid, errStopping); done != nil {
			ends = append(ends, done)
		}
		if o := p.setUp; o != nil {
			m.forgetSetUpLocked(o)
			o.cancel(errStopping)
			ends = append(ends, o.done)
		}
	}
	m.mu.Unlock()
	over := time.NewTimer(hangTimeout)
	defer over.Stop()
	for _, done := range ends {
		select {
		case <-done:
		case <-over.C:
			return
		}
	}
}
