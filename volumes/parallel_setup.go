package volumes

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/slots"
)

// parallelVolumes bounds the volumes of one pod that are set up in parallel, counting those
// that may block. One that takes longer than longSetUp is waiting for something, and gives
// up its slot (see maxThreads).
const parallelVolumes = 8

// maxThreads bounds the volumes of all pods that are being set up and may block. Each that
// hangs occupies a thread, and Go's runtime aborts the process at 10,000; before that, new
// volumes of these kinds wait until one of the hung ones returns.
const maxThreads = 1000

// volumeSetUp is the setup of one of a pod's volumes. It is zero for a volume that no container
// uses. Mounter.mu guards it.
type volumeSetUp struct {
	active    bool          // it has not ended: it runs, or waits for a slot
	startedAt time.Time     // when it started to run; zero while it does not
	done      chan struct{} // closed at its end
	err       error         // why it failed
	reported  bool          // Ensure has returned err
}

// setUpVolumes sets up the volumes that the pod's containers use and returns when each has
// succeeded or failed. It sets up in parallel the volumes that may block on a server, a
// driver or a disk, so that one that hangs or fails does not delay the others. It sets up
// the rest here, one after the other: each takes less than a millisecond of CPU, and in
// parallel ten of them took as long (BenchmarkPodWithTenVolumes).
func (m *Mounter) setUpVolumes(ctx context.Context, o *podSetUp) {
	volumes := o.pod.Spec.Volumes
	used := pod.UsedVolumes(o.pod)
	if !m.initVolumes(o, used) {
		return
	}
	places, before := slots.New(parallelVolumes, slots.Unlimited, longSetUp), m.prerequisites(o.pod, used)
	inParallel := func(i int) {
		ready := m.doneChannels(o, before[i])
		go m.setUpInParallel(ctx, o, i, ready, places)
	}
	var here []int
	for i := range volumes {
		switch {
		case !used[volumes[i].Name]:
		case m.mayBlock(o.pod, &volumes[i]):
			inParallel(i)
		default:
			here = append(here, i)
		}
	}
	for _, i := range here {
		m.runVolumeSetUp(ctx, o, i)
	}
	for {
		select {
		case i := <-o.retries:
			if m.mayBlock(o.pod, &volumes[i]) {
				inParallel(i)
			} else {
				go m.runVolumeSetUp(ctx, o, i)
			}
		case <-o.allDone:
			return
		}
	}
}

// doneChannels returns the done channels of the volumes with these indexes.
func (m *Mounter) doneChannels(o *podSetUp, indexes []int) (done []<-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range indexes {
		done = append(done, o.volumes[i].done)
	}
	return done
}

// mayBlock says whether setting the volume up may block on something outside podd.
func (m *Mounter) mayBlock(p *v1.Pod, v *v1.Volume) bool {
	if pod.ClaimName(p, v) != "" {
		return true // writing its binding to disk may block, too
	}
	k := m.kindOf(v)
	return k != nil && k.mayBlock
}

// setUpInParallel calls runVolumeSetUp once the prerequisites are done and it has a slot and a
// thread. It keeps the slot for longSetUp at most, and the thread until it returns.
func (m *Mounter) setUpInParallel(ctx context.Context, o *podSetUp, i int, prerequisites []<-chan struct{}, places *slots.Slots) {
	for _, done := range prerequisites {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	if leave, err := places.Acquire(ctx, slots.Rest{}); err == nil {
		defer leave()
	}
	select {
	case m.threads <- struct{}{}:
		defer func() { <-m.threads }()
	case <-ctx.Done():
	}
	m.runVolumeSetUp(ctx, o, i)
}

// runVolumeSetUp sets up one volume, unless the setup was canceled.
func (m *Mounter) runVolumeSetUp(ctx context.Context, o *podSetUp, i int) {
	if ctx.Err() != nil {
		m.endVolumeSetUp(o, i, context.Cause(ctx))
		return
	}
	m.mu.Lock()
	o.volumes[i].startedAt = time.Now()
	m.mu.Unlock()
	m.endVolumeSetUp(o, i, m.setUpOneExclusively(ctx, o.pod, &o.pod.Spec.Volumes[i]))
}

// setUpOneExclusively is setUpOne; it keeps anybody else from writing a live volume meanwhile.
func (m *Mounter) setUpOneExclusively(ctx context.Context, p *v1.Pod, v *v1.Volume) error {
	if k := m.kindOf(v); k != nil && k.live {
		unlock, err := m.lockLive(ctx, p.UID)
		if err != nil {
			return err
		}
		defer unlock()
	}
	return m.setUpOne(ctx, p, v)
}

// initVolumes marks the setups of used volumes as active, and says whether there are any.
func (m *Mounter) initVolumes(o *podSetUp, used map[string]bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(o.pod.Spec.Volumes)
	o.volumes, o.allDone, o.retries = make([]volumeSetUp, n), make(chan struct{}), make(chan int, n)
	for i := range o.volumes {
		if used[o.pod.Spec.Volumes[i].Name] {
			o.markActiveLocked(i)
		}
	}
	return o.active > 0
}

func (o *podSetUp) markActiveLocked(i int) {
	o.volumes[i] = volumeSetUp{active: true, done: make(chan struct{})}
	o.active++
}

// endVolumeSetUp records the result of one volume's setup. If Ensure has reported the pod's
// setup as in progress, the pod is woken to see the result, after a short delay in which others
// may end.
func (m *Mounter) endVolumeSetUp(o *podSetUp, i int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := &o.volumes[i]
	v.active, v.startedAt, v.err = false, time.Time{}, err
	close(v.done)
	o.progressed = true
	if o.active--; o.active == 0 {
		close(o.allDone)
		return
	}
	if o.reportedPending && o.wakeTimer == nil && m.options.Waker != nil {
		o.wakeTimer = time.AfterFunc(ensureWait, func() { m.wakeOnProgress(o) })
	}
}

// wakeOnProgress wakes the pod if setups of its volumes have ended since the last Ensure.
func (m *Mounter) wakeOnProgress(o *podSetUp) {
	m.mu.Lock()
	o.wakeTimer = nil
	wake := o.progressed && o.active > 0 && m.stateOf(o.pod.UID).setUp == o
	m.mu.Unlock()
	if wake {
		m.options.Waker.Wake(o.pod.UID)
	}
}

// stopWakeTimerLocked stops the timer of endVolumeSetUp: the whole setup has ended.
func (o *podSetUp) stopWakeTimerLocked() {
	if o.wakeTimer != nil {
		o.wakeTimer.Stop()
		o.wakeTimer = nil
	}
}

// retryFailedLocked restarts the setups of failed volumes that Ensure has reported, while
// others are in progress. It returns their done channels.
func (o *podSetUp) retryFailedLocked() (begun []<-chan struct{}) {
	if o.active == 0 {
		return nil // no volume has started yet, or all have ended
	}
	for i := range o.volumes {
		if v := &o.volumes[i]; !v.active && v.err != nil && v.reported {
			o.markActiveLocked(i)
			begun = append(begun, v.done)
			o.retries <- i // setUpVolumes reads it until none is active
		}
	}
	return begun
}

// failedLocked returns the errors of failed volumes in the pod's order and marks them as
// reported.
func (o *podSetUp) failedLocked() (errs []error) {
	for i := range o.volumes {
		if v := &o.volumes[i]; v.err != nil && !v.active {
			v.reported = true
			errs = append(errs, setUpFailed(&o.pod.Spec.Volumes[i], v.err))
		}
	}
	return errs
}

// pendingVolume is a volume that a setup waits for, and since when.
type pendingVolume struct {
	volume string
	since  time.Time
}

// pendingVolumesLocked returns the volumes whose setup is running, in the pod's order.
func (o *podSetUp) pendingVolumesLocked() (pending []pendingVolume) {
	for i := range o.volumes {
		if at := o.volumes[i].startedAt; !at.IsZero() {
			pending = append(pending, pendingVolume{o.pod.Spec.Volumes[i].Name, at})
		}
	}
	return pending
}

// setCurrentVolume records the volume that is being set up, where they are not set up in parallel.
func (m *Mounter) setCurrentVolume(o *podSetUp, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.volumes == nil {
		o.volumes = make([]volumeSetUp, len(o.pod.Spec.Volumes))
	}
	for i := range o.volumes {
		o.volumes[i].startedAt = time.Time{}
		if o.pod.Spec.Volumes[i].Name == name {
			o.volumes[i].startedAt = time.Now()
		}
	}
}
