package wake

import "sync"

// Broadcaster notifies any number of subscribers that something changed, but not what. The
// zero value is ready for use. All methods are safe for concurrent use, and none of them
// blocks.
type Broadcaster struct {
	mu   sync.Mutex
	subs map[Signal]struct{}
}

// Subscribe returns a channel that receives after each Notify from now on, until stop
// is called. Notifications that are not received in between are merged: subscribe
// first, then read what may change. The channel is never closed; stop may be called
// more than once.
func (b *Broadcaster) Subscribe() (changes <-chan struct{}, stop func()) {
	s := New()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs == nil {
		b.subs = map[Signal]struct{}{}
	}
	b.subs[s] = struct{}{}
	return s, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, s)
	}
}

// Notify notifies the subscribers.
func (b *Broadcaster) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subs {
		s.Notify()
	}
}
