// Package keylock is a set of locks by key, whose waiters can give up: it serializes calls to
// plugins that concern one volume or one claim, without a mutex over a call.
package keylock

import (
	"context"
	"sync"
)

// Locks is a set of locks by key. The zero value is ready to use.
type Locks struct {
	mu    sync.Mutex
	locks map[string]*lock
}

type lock struct {
	held  chan struct{} // capacity 1: full while the lock is held
	users int           // guarded by Locks.mu
}

// Lock waits for the lock of a key; the error is ctx's cause.
func (k *Locks) Lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*lock{}
	}
	l := k.locks[key]
	if l == nil {
		l = &lock{held: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.locks, key)
		}
	}
	select {
	case l.held <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
	return func() { <-l.held; leave() }, nil
}
