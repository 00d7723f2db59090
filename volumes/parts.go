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

// part is the setup of one of a pod's volumes. It is zero for a volume that no container
// uses. Mounter.mu guards it.
type part struct {
	active   bool          // it has not ended: it runs, or waits for a slot
	at       time.Time     // when it started to run; zero while it does not
	done     chan struct{} // closed at its end
	err      error         // why it failed
	reported bool          // Ensure has returned err
}

// setUpVolumes sets up the volumes that the pod's containers use and returns when each has
// succeeded or failed. It sets up in parallel the volumes that may block on a server, a
// driver or a disk, so that one that hangs or fails does not delay the others. It sets up
// the rest here, one after the other: each takes less than a millisecond of CPU, and in
// parallel ten of them took as long (BenchmarkPodWithTenVolumes).
func (m *Mounter) setUpVolumes(ctx context.Context, o *setUp) {
	volumes := o.pod.Spec.Volumes
	used := pod.UsedVolumes(o.pod)
	if !m.beginAll(o, used) {
		return
	}
	places, before := slots.New(parallelVolumes, slots.Any, longSetUp), m.prerequisites(o.pod, used)
	inParallel := func(i int) {
		ready := m.doneOf(o, before[i])
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
		m.setUpPart(ctx, o, i)
	}
	for {
		select {
		case i := <-o.retries:
			if m.mayBlock(o.pod, &volumes[i]) {
				inParallel(i)
			} else {
				go m.setUpPart(ctx, o, i)
			}
		case <-o.idle:
			return
		}
	}
}

// doneOf returns the done channels of some parts.
func (m *Mounter) doneOf(o *setUp, parts []int) (done []<-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range parts {
		done = append(done, o.parts[i].done)
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

// setUpInParallel calls setUpPart once the prerequisites are done and it has a slot and a
// thread. It keeps the slot for longSetUp at most, and the thread until it returns.
func (m *Mounter) setUpInParallel(ctx context.Context, o *setUp, i int, prerequisites []<-chan struct{}, places *slots.Slots) {
	for _, done := range prerequisites {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	if leave, err := places.Enter(ctx, slots.Rest{}); err == nil {
		defer leave()
	}
	select {
	case m.threads <- struct{}{}:
		defer func() { <-m.threads }()
	case <-ctx.Done():
	}
	m.setUpPart(ctx, o, i)
}

// setUpPart sets up one volume, unless the setup was canceled.
func (m *Mounter) setUpPart(ctx context.Context, o *setUp, i int) {
	if ctx.Err() != nil {
		m.endPart(o, i, context.Cause(ctx))
		return
	}
	m.mu.Lock()
	o.parts[i].at = time.Now()
	m.mu.Unlock()
	m.endPart(o, i, m.setUpAlone(ctx, o.pod, &o.pod.Spec.Volumes[i]))
}

// setUpAlone is setUpOne; it keeps anybody else from writing a live volume meanwhile.
func (m *Mounter) setUpAlone(ctx context.Context, p *v1.Pod, v *v1.Volume) error {
	if k := m.kindOf(v); k != nil && k.live {
		unlock, err := m.lockLive(ctx, p.UID)
		if err != nil {
			return err
		}
		defer unlock()
	}
	return m.setUpOne(ctx, p, v)
}

// beginAll marks the parts of used volumes as active, and says whether there are any.
func (m *Mounter) beginAll(o *setUp, used map[string]bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(o.pod.Spec.Volumes)
	o.parts, o.idle, o.retries = make([]part, n), make(chan struct{}), make(chan int, n)
	for i := range o.parts {
		if used[o.pod.Spec.Volumes[i].Name] {
			o.beginLocked(i)
		}
	}
	return o.active > 0
}

func (o *setUp) beginLocked(i int) {
	o.parts[i] = part{active: true, done: make(chan struct{})}
	o.active++
}

// endPart records the result of a part. If Ensure has reported the setup as in progress,
// the pod is woken to see the result, after a short delay in which other parts may end.
func (m *Mounter) endPart(o *setUp, i int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &o.parts[i]
	p.active, p.at, p.err = false, time.Time{}, err
	close(p.done)
	o.news = true
	if o.active--; o.active == 0 {
		close(o.idle)
		return
	}
	if o.waited && o.wakeTimer == nil && m.options.Waker != nil {
		o.wakeTimer = time.AfterFunc(ensureWait, func() { m.wakeForNews(o) })
	}
}

// wakeForNews wakes the pod if parts of its setup have ended since the last Ensure.
func (m *Mounter) wakeForNews(o *setUp) {
	m.mu.Lock()
	o.wakeTimer = nil
	wake := o.news && o.active > 0 && m.known(o.pod.UID).setUp == o
	m.mu.Unlock()
	if wake {
		m.options.Waker.Wake(o.pod.UID)
	}
}

// stopWakeTimerLocked stops the timer of endPart: the whole setup has ended.
func (o *setUp) stopWakeTimerLocked() {
	if o.wakeTimer != nil {
		o.wakeTimer.Stop()
		o.wakeTimer = nil
	}
}

// retryFailedLocked restarts the failed parts that Ensure has reported, while other parts
// are in progress. It returns their done channels.
func (o *setUp) retryFailedLocked() (begun []<-chan struct{}) {
	if o.active == 0 {
		return nil // the parts have not started yet, or all have ended
	}
	for i := range o.parts {
		if p := &o.parts[i]; !p.active && p.err != nil && p.reported {
			o.beginLocked(i)
			begun = append(begun, p.done)
			o.retries <- i // setUpVolumes reads it until none is active
		}
	}
	return begun
}

// failedLocked returns the errors of failed parts in the pod's order and marks them as
// reported.
func (o *setUp) failedLocked() (errs []error) {
	for i := range o.parts {
		if p := &o.parts[i]; p.err != nil && !p.active {
			p.reported = true
			errs = append(errs, setUpFailed(&o.pod.Spec.Volumes[i], p.err))
		}
	}
	return errs
}

// waited is a volume that a setup waits for, and since when.
type waited struct {
	volume string
	since  time.Time
}

// waitsLocked returns the volumes with running parts, in the pod's order.
func (o *setUp) waitsLocked() (waits []waited) {
	for i := range o.parts {
		if at := o.parts[i].at; !at.IsZero() {
			waits = append(waits, waited{o.pod.Spec.Volumes[i].Name, at})
		}
	}
	return waits
}

// setVolume records the volume that is being set up, where they are not set up in parallel.
func (m *Mounter) setVolume(o *setUp, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.parts == nil {
		o.parts = make([]part, len(o.pod.Spec.Volumes))
	}
	for i := range o.parts {
		o.parts[i].at = time.Time{}
		if o.pod.Spec.Volumes[i].Name == name {
			o.parts[i].at = time.Now()
		}
	}
}
