package prober

import (
	"context"
	"sync"
	"time"

	"podd/internal/pod"
)

const (
	// minExecFastPeriod bounds podd/probe-until-success for exec probes.
	minExecFastPeriod = 100 * time.Millisecond
	// slotHoldTime is how long a command holds its slot: what it costs the node is its
	// start, some 30 ms of a processor, and one that hangs must not delay the others.
	slotHoldTime = 100 * time.Millisecond
)

// gate bounds the commands that start at the same time. It serves them in the order of
// arrival, and each probe waits at most once: nobody starves. A pod holds, or waits in
// that order for, at most half of the slots. The rest of its commands wait for one
// another, so that no pod's probes are behind all of another's.
type gate struct {
	slots chan struct{}

	mu     sync.Mutex // guards shares and their users
	shares map[pod.UID]*share
}

// share is a pod's part of the slots.
type share struct {
	slots chan struct{}
	users int // commands that hold a slot or wait for one
}

func newGate(n int) *gate {
	return &gate{slots: make(chan struct{}, n), shares: make(map[pod.UID]*share)}
}

// acquire waits for a slot for a command in that pod, and returns the function that
// releases it. The slot also becomes free by itself after slotHoldTime. The function may
// be called more than once.
func (g *gate) acquire(ctx context.Context, uid pod.UID) (release func(), err error) {
	s := g.acquireShare(uid)
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		g.releaseShare(uid, s)
		return nil, context.Cause(ctx)
	}
	free := func() {
		<-s.slots
		g.releaseShare(uid, s)
	}
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		free()
		return nil, context.Cause(ctx)
	}
	timer := time.AfterFunc(slotHoldTime, func() {
		<-g.slots
		free()
	})
	return func() {
		if timer.Stop() {
			<-g.slots
			free()
		}
	}, nil
}

// acquireShare and releaseShare count who uses a pod's share, which ends with the last.
func (g *gate) acquireShare(uid pod.UID) *share {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.shares[uid]
	if s == nil {
		s = &share{slots: make(chan struct{}, max(cap(g.slots)/2, 1))}
		g.shares[uid] = s
	}
	s.users++
	return s
}

func (g *gate) releaseShare(uid pod.UID, s *share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(g.shares, uid)
	}
}
