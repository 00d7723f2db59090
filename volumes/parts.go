package volumes

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// parallelVolumes is how many of one pod's volumes are at work at a time, of those that
// may wait for what is not podd's own. One that takes longer than longSetUp waits for
// something, and gives its place up: those that hang, of which each takes a thread, are
// bounded by the pod's own number of volumes.
const parallelVolumes = 8

// part is the set-up of one of a pod's volumes. Mounter.mu guards it.
type part struct {
	active bool          // it has not ended: it is at work, or waits for its turn
	at     time.Time     // since when it is at work; zero while it is not
	done   chan struct{} // closed at its end
	err    error         // how it failed
	told   bool          // somebody was told of that
}

// setUpVolumes sets all of the pod's volumes up, and returns when each has come to its
// end, well or not. Those that may wait for a server, a driver or a foreign disk do
// that side by side, each alone: what hangs or fails keeps no other from being set up.
// The others are made here, one after the other: each takes less than a millisecond of
// CPU, and side by side ten of them took as long (BenchmarkPodWithTenVolumes).
func (m *Mounter) setUpVolumes(ctx context.Context, o *setUp) {
	volumes := o.pod.Spec.Volumes
	if len(volumes) == 0 {
		return
	}
	m.beginAll(o)
	places, first := make(chan struct{}, parallelVolumes), m.madeFirst(o.pod)
	beside := func(i int) {
		ready := m.endsOf(o, first[i])
		go m.setUpBeside(ctx, o, i, ready, places)
	}
	var here []int
	for i := range volumes {
		if m.mayWait(o.pod, &volumes[i]) {
			beside(i)
		} else {
			here = append(here, i)
		}
	}
	for _, i := range here {
		m.setUpPart(ctx, o, i)
	}
	for {
		select {
		case i := <-o.again:
			if m.mayWait(o.pod, &volumes[i]) {
				beside(i)
			} else {
				go m.setUpPart(ctx, o, i)
			}
		case <-o.idle:
			return
		}
	}
}

// endsOf is closed when those parts have ended.
func (m *Mounter) endsOf(o *setUp, parts []int) (ends []<-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range parts {
		ends = append(ends, o.parts[i].done)
	}
	return ends
}

// mayWait says whether a volume may be made of something that is not podd's own, which
// may not answer.
func (m *Mounter) mayWait(p *v1.Pod, v *v1.Volume) bool {
	if pod.ClaimName(p, v) != "" {
		return true // its binding is written to the disk, too
	}
	k := m.kindOf(v)
	return k != nil && k.waits
}

// setUpBeside is setUpPart after those volumes that come first, and with one of the
// places, for as long as that counts as work.
func (m *Mounter) setUpBeside(ctx context.Context, o *setUp, i int, first []<-chan struct{}, places chan struct{}) {
	for _, done := range first {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	select {
	case places <- struct{}{}:
		leave := sync.OnceFunc(func() { <-places })
		defer leave()
		defer time.AfterFunc(longSetUp, leave).Stop()
	case <-ctx.Done():
	}
	m.setUpPart(ctx, o, i)
}

// setUpPart sets one volume up, unless the set-up was given up.
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

// setUpAlone is setUpOne; of a live volume, while nobody else writes it.
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

func (m *Mounter) beginAll(o *setUp) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(o.pod.Spec.Volumes)
	o.parts, o.idle, o.again = make([]part, n), make(chan struct{}), make(chan int, n)
	for i := range o.parts {
		o.beginLocked(i)
	}
}

func (o *setUp) beginLocked(i int) {
	o.parts[i] = part{active: true, done: make(chan struct{})}
	o.active++
}

// endPart notes how a part has ended. A pod that waits for others is told of it, unless
// they end in a moment, too.
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
	if o.waited && o.tell == nil && m.options.Waker != nil {
		o.tell = time.AfterFunc(atOnce, func() { m.tellNews(o) })
	}
}

// tellNews wakes a pod that was not told yet of how parts of its set-up have ended.
func (m *Mounter) tellNews(o *setUp) {
	m.mu.Lock()
	o.tell = nil
	wake := o.news && o.active > 0 && m.setUps[o.pod.UID] == o
	m.mu.Unlock()
	if wake {
		m.options.Waker.Wake(o.pod.UID)
	}
}

// quietLocked ends what endPart has begun: all of it has ended.
func (o *setUp) quietLocked() {
	if o.tell != nil {
		o.tell.Stop()
		o.tell = nil
	}
}

// againLocked begins those parts again that have failed, which somebody was told,
// while others go on. The channels are closed at their ends.
func (o *setUp) againLocked() (begun []<-chan struct{}) {
	if o.active == 0 {
		return nil // it has not come to them, or is over
	}
	for i := range o.parts {
		if p := &o.parts[i]; !p.active && p.err != nil && p.told {
			o.beginLocked(i)
			begun = append(begun, p.done)
			o.again <- i // setUpVolumes reads it until none is active
		}
	}
	return begun
}

// failedLocked is why volumes are not set up, in the pod's order; who asks tells.
func (o *setUp) failedLocked() (errs []error) {
	for i := range o.parts {
		if p := &o.parts[i]; p.err != nil && !p.active {
			p.told = true
			errs = append(errs, setUpFailed(&o.pod.Spec.Volumes[i], p.err))
		}
	}
	return errs
}

// waited is a volume that something waits for, and since when.
type waited struct {
	volume string
	since  time.Time
}

// waitsLocked are the volumes that a set-up is at, in the pod's order.
func (o *setUp) waitsLocked() (waits []waited) {
	for i := range o.parts {
		if at := o.parts[i].at; !at.IsZero() {
			waits = append(waits, waited{o.pod.Spec.Volumes[i].Name, at})
		}
	}
	return waits
}

// setVolume notes which volume is worked on where that is one after the other.
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
