package csi

import (
	"context"
	"sync"
)

// turns has the calls for one volume wait for one another. Its zero value is ready.
type turns struct {
	mu    sync.Mutex
	taken map[string]*turn
}

type turn struct {
	held  chan struct{} // capacity 1: full while somebody has it
	users int           // guarded by turns.mu
}

// take waits for the turn; the error is ctx's cause.
func (t *turns) take(ctx context.Context, key string) (done func(), err error) {
	t.mu.Lock()
	if t.taken == nil {
		t.taken = map[string]*turn{}
	}
	h := t.taken[key]
	if h == nil {
		h = &turn{held: make(chan struct{}, 1)}
		t.taken[key] = h
	}
	h.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(t.taken, key)
		}
	}
	select {
	case h.held <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
	return func() { <-h.held; leave() }, nil
}
