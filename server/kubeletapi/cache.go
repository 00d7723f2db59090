package kubeletapi

import (
	"context"
	"sync"
	"time"
)

// maxCached bounds the answers that a cache keeps: questions are a stranger's to ask.
const maxCached = 4096

// cache keeps answers for a while. Of the same question asked by many at once one is asked.
type cache[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]*answer[V]
}

// answer is what is known, or being asked: done is closed with it.
type answer[V any] struct {
	done    chan struct{}
	value   V
	err     error
	expires time.Time
}

func newCache[K comparable, V any]() *cache[K, V] { return &cache[K, V]{all: make(map[K]*answer[V])} }

// get returns what is known, or asks; ask also returns for how long its answer serves. An
// error is not kept. It blocks until the answer is there or ctx ends; asking goes on then, for
// the others.
func (c *cache[K, V]) get(ctx context.Context, key K, ask func(context.Context) (V, time.Duration, error)) (V, error) {
	c.mu.Lock()
	a := c.all[key]
	if a == nil || isClosed(a.done) && !time.Now().Before(a.expires) {
		c.makeRoomLocked()
		a = &answer[V]{done: make(chan struct{})}
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

// put keeps an answer that was asked for elsewhere.
func (c *cache[K, V]) put(key K, value V, ttl time.Duration) {
	a := &answer[V]{done: make(chan struct{}), value: value, expires: time.Now().Add(ttl)}
	close(a.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.makeRoomLocked()
	c.all[key] = a
}

// makeRoomLocked drops what has expired and, if that is not enough, everything that nobody
// waits for.
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
