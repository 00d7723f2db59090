// Package slots bounds the work in progress.
//
// Waiters get slots in the order of arrival. A slow holder must not delay all others: with
// a timeout, its slot becomes free although it goes on, as long as no more than a bounded
// number of holders have done so. A holder that has nothing to do for a while rests: others
// have its slot meanwhile.
package slots

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// Slots is a number of slots. Create it with New; its methods are safe for concurrent use.
type Slots struct {
	size, maxSlotless int
	holdTimeout       time.Duration

	mu       sync.Mutex
	inUse    int             // holders with a slot, more than size after a rest; guarded by mu
	slotless int             // holders that go on without one; guarded by mu
	queue    []chan struct{} // each is closed when its waiter has a slot; guarded by mu
}

// Unlimited as slow lets any number of holders go on without a slot.
const Unlimited = math.MaxInt

// Rest is when a holder has nothing to do, as times after its entry. If To is no later than
// From, it does not rest.
type Rest struct{ From, To time.Duration }

// New returns n slots. A holder that still has its slot after holdTimeout gives it up
// and goes on without one; at most slow holders go on like that or rest, so that n+slow
// bounds those in flight. With slow 0 or holdTimeout 0, a slot is held until its holder
// releases it.
func New(n, slow int, holdTimeout time.Duration) *Slots {
	return &Slots{size: n, maxSlotless: slow, holdTimeout: holdTimeout}
}

// Acquire waits for a slot and returns the function that frees it, which may be called more
// than once. It blocks until a slot is free or ctx ends; then the error is ctx's cause.
//
// A holder that rests gives its slot up. After its rest it takes one back without waiting,
// because its work cannot be put off. There may then be more holders at work than slots, and
// nobody enters until there are fewer. The holder's timeout begins anew after the rest.
func (s *Slots) Acquire(ctx context.Context, rest Rest) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := s.awaitSlot(ctx); err != nil {
		return nil, err
	}
	h := &holder{slots: s, state: working}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case rest.To > rest.From:
		h.restUntil = time.Now().Add(rest.To)
		h.timer = time.AfterFunc(rest.From, h.handleTimer)
	case s.holdTimeout > 0:
		h.timer = time.AfterFunc(s.holdTimeout, h.handleTimer)
	}
	return h.release, nil
}

// awaitSlot waits for a slot.
func (s *Slots) awaitSlot(ctx context.Context) error {
	s.mu.Lock()
	if s.inUse < s.size && len(s.queue) == 0 {
		s.inUse++
		s.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	s.queue = append(s.queue, mine)
	s.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, mine); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	} else { // it had just got one
		s.inUse--
		s.grant()
	}
	return context.Cause(ctx)
}

// grant gives free slots to those who wait. It is called with mu held.
func (s *Slots) grant() {
	for s.inUse < s.size && len(s.queue) > 0 {
		close(s.queue[0])
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.inUse++
	}
}

// Waiting returns the number of waiters now.
func (s *Slots) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// InUse returns the number of slots in use now.
func (s *Slots) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse
}

// state is what a holder is doing.
type state int

const (
	working state = iota
	resting
	overdue // it has given its slot up for good
	released
)

// holder is a caller that has entered. The mutex of its slots guards its fields.
type holder struct {
	slots     *Slots
	restUntil time.Time // the end of its rest; zero without one, and after it
	state     state
	timer     *time.Timer // nil without a timeout
}

// handleTimer does what a holder does when its time has come. If it should give its slot up but
// too many have done that already, it tries again later.
func (h *holder) handleTimer() {
	s := h.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := time.Until(h.restUntil)
	switch {
	case h.state == resting:
		h.state, h.restUntil = working, time.Time{}
		s.inUse, s.slotless = s.inUse+1, s.slotless-1
		h.resetTimer(s.holdTimeout)
	case h.state != working:
		return
	case s.slotless >= s.maxSlotless:
		h.resetTimer(s.holdTimeout)
		return
	default:
		s.inUse, s.slotless = s.inUse-1, s.slotless+1
		if h.state = overdue; pause > 0 {
			h.state = resting
			h.resetTimer(pause)
		}
	}
	s.grant()
}

// resetTimer schedules another call of handleTimer; without a timeout, it does not.
func (h *holder) resetTimer(after time.Duration) {
	if after > 0 {
		h.timer.Reset(after)
	}
}

func (h *holder) release() {
	s := h.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	switch h.state {
	case working:
		s.inUse--
	case resting, overdue:
		s.slotless--
	}
	h.state = released
	if h.timer != nil {
		h.timer.Stop()
	}
	s.grant()
}
