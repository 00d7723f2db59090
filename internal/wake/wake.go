package wake

import (
	"context"
	"time"
)

// Signal tells one receiver that something may have changed. Notifications that come before
// it looks count as one. Make it with New, and receive from it as from any channel.
type Signal chan struct{}

// New returns a Signal without a notification.
func New() Signal { return make(Signal, 1) }

// Notify wakes the receiver, now or as soon as it receives. It never blocks.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default: // it will look anyway
	}
}

// Sleep waits for d, or until ctx ends; true says that d has passed. It returns at once if d
// is not positive.
func Sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	return Until(ctx, nil, time.Now().Add(d))
}

// Until waits for a signal, for a time, or until ctx ends; false says that ctx has ended. A
// nil signal and a zero time never come.
func Until(ctx context.Context, signal <-chan struct{}, at time.Time) bool {
	var due <-chan time.Time
	if !at.IsZero() {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-signal:
	case <-due:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Backoff is a delay that doubles with each failure in a row, from Initial to Max.
type Backoff struct{ Initial, Max time.Duration }

// Next returns the delay after a failure, from the delay before it, which is 0 for the
// first failure.
func (b Backoff) Next(last time.Duration) time.Duration { return min(max(2*last, b.Initial), b.Max) }
