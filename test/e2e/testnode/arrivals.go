package testnode

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// arrivals notes when each of some names was first seen, and lets others wait
// for them without asking again and again.
type arrivals struct {
	what string // plural, for errors

	mu      sync.Mutex
	seen    map[string]time.Time
	changed chan struct{} // closed and replaced with every new name
	err     error         // why nothing will be seen any more
}

func newArrivals(what string) *arrivals {
	return &arrivals{what: what, seen: map[string]time.Time{}, changed: make(chan struct{})}
}

func (a *arrivals) note(name string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.seen[name]; ok {
		return
	}
	a.seen[name] = at
	a.wakeLocked()
}

// fail ends every wait that is not over yet.
func (a *arrivals) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
	a.wakeLocked()
}

func (a *arrivals) wakeLocked() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// Wait blocks until all names have been seen and returns when the last was.
func (a *arrivals) Wait(ctx context.Context, names ...string) (time.Time, error) {
	for {
		a.mu.Lock()
		var last time.Time
		var missing []string
		for _, name := range names {
			at, ok := a.seen[name]
			if !ok {
				missing = append(missing, name)
			} else if at.After(last) {
				last = at
			}
		}
		changed, err := a.changed, a.err
		a.mu.Unlock()
		if len(missing) == 0 {
			return last, nil
		}
		if err == nil {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		return time.Time{}, fmt.Errorf("wait for %d of %d %s (%s …): %w", len(missing), len(names), a.what, missing[0], err)
	}
}
