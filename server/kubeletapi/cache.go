package kubeletapi

import (
	"context"
	"sync"
	"time"
)

// maxCached bounds the answers that a cache keeps, because unauthenticated clients choose the
// keys.
const maxCached = 4096

// cache keeps answers for a while. When many callers ask the same question at once, it is asked
// once.
type cache[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]*cacheEntry[V]
}

// cacheEntry is a known answer, or one that is being asked for. done is closed once it is known.
type cacheEntry[V any] struct {
	done    chan struct{}
	value   V
	err     error
	expires time.Time
}

func newCache[K comparable, V any]() *cache[K, V] {
	return &cache[K, V]{all: make(map[K]*cacheEntry[V])}
}

// get returns the known answer, or asks. ask also returns how long its answer stays valid.
// Errors are not kept. get blocks until the answer arrives or ctx ends; the question continues
// after that, for other callers.
func (c *cache[K, V]) get(ctx context.Context, key K, ask func(context.Context) (V, time.Duration, error)) (V, error) {
	c.mu.Lock()
	a := c.all[key]
	if a == nil || isClosed(a.done) && !time.Now().Before(a.expires) {
		c.makeRoomLocked()
		a = &cacheEntry[V]{done: make(chan struct{})}
		c.all[key] = a
		go func() {
			value, ttl, err := ask(context.WithoutCancel(ctx))
			c.mu.Lock()
			defer c.mu.Unlock()
			a.value, a.err, a.expires = value, err, time.Now().Add(ttl)
			if err != nil && c.all[key] == a {
				delete(c.all, key)
			}
			close(a.done)
		}()
	}
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.value, a.err
	case <-ctx.Done():
		var none V
		return none, context.Cause(ctx)
	}
}

// put stores an answer that somebody asked for elsewhere.
func (c *cache[K, V]) put(key K, value V, ttl time.Duration) {
	a := &cacheEntry[V]{done: make(chan struct{}), value: value, expires: time.Now().Add(ttl)}
	close(a.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.makeRoomLocked()
	c.all[key] = a
}

// makeRoomLocked drops the expired answers. If that is not enough, it drops every answer except
// those still being asked for.
func (c *cache[K, V]) makeRoomLocked() {
	if len(c.all) < maxCached {
		return
	}
	for _, anyway := range []bool{false, true} {
		for key, a := range c.all {
			if isClosed(a.done) && (anyway || !time.Now().Before(a.expires)) {
				delete(c.all, key)
			}
		}
		if len(c.all) < maxCached {
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
