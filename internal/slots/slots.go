// Package slots bounds what is in flight at the same time.
//
// Whoever waits for a slot gets it in the order of arrival. A holder that takes long is
// not to delay all others: with a patience, its slot becomes free although it goes on,
// as long as no more than a bounded number of holders have done so.
package slots

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Slots is a number of slots. Create it with New; its methods are safe for concurrent use.
type Slots struct {
	free     *semaphore.Weighted
	slow     *semaphore.Weighted
	patience time.Duration
	waiting  atomic.Int64
}

// New returns n slots. A holder that still has its slot after the patience gives it up
// and goes on without one; at most slow holders go on like that, so that n+slow bounds
// those in flight. With slow 0 or patience 0, a slot is held until its holder leaves.
func New(n, slow int, patience time.Duration) *Slots {
	return &Slots{free: semaphore.NewWeighted(int64(n)), slow: semaphore.NewWeighted(int64(slow)), patience: patience}
}

// Enter waits for a slot and returns the function that frees it, which may be called
// more than once. It blocks until a slot is free or ctx ends, and then returns the
// cause.
func (s *Slots) Enter(ctx context.Context) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !s.free.TryAcquire(1) {
		s.waiting.Add(1)
		err := s.free.Acquire(ctx, 1)
		s.waiting.Add(-1)
		if err != nil {
			return nil, context.Cause(ctx)
		}
	}
	h := &holder{slots: s, of: s.free}
	if s.patience > 0 {
		h.mu.Lock() // the timer may fire before it is assigned
		h.timer = time.AfterFunc(s.patience, h.giveUp)
		h.mu.Unlock()
	}
	return h.leave, nil
}

// Waiting is the number of those that wait for a slot now.
func (s *Slots) Waiting() int { return int(s.waiting.Load()) }

// holder is one that has entered.
type holder struct {
	slots *Slots

	mu    sync.Mutex
	timer *time.Timer         // nil without a patience; guarded by mu
	of    *semaphore.Weighted // what leave releases; nil after that; guarded by mu
}

// giveUp frees the slot of a holder that takes long. Where too many have done that
// already, it tries again later.
func (h *holder) giveUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		return
	}
	if !h.slots.slow.TryAcquire(1) {
		h.timer.Reset(h.slots.patience)
		return
	}
	h.of.Release(1)
	h.of = h.slots.slow
}

func (h *holder) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		return
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	h.of.Release(1)
	h.of = nil
}
