// Package keylock is a set of locks by key. A waiter can give up. The locks serialize the
// work on one pod, one volume or one claim, without a mutex over a call that may hang.
package keylock

import (
	"context"
	"sync"
)

// Locks is a set of locks by key. The zero value is ready to use.
type Locks[K comparable] struct {
	mu    sync.Mutex
	locks map[K]*lock
}

type lock struct {
	held  chan struct{} // capacity 1: full while the lock is held
	users int           // guarded by Locks.mu
}

// Lock waits for the lock of a key; the error is ctx's cause.
func (k *Locks[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[K]*lock{}
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

// Len returns the number of locks that are held or waited for.
func (k *Locks[K]) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.locks)
}
