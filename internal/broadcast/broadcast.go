// Package broadcast notifies any number of subscribers that something changed, but
// not what.
package broadcast

import "sync"

// Broadcaster notifies its subscribers. The zero value is ready for use. All methods
// are safe for concurrent use, and none of them blocks.
type Broadcaster struct {
	mu   sync.Mutex
	subs map[chan struct{}]struct{}
}

// Subscribe returns a channel that receives after each Notify from now on, until stop
// is called. Notifications that are not received in between are merged: subscribe
// first, then read what may change. The channel is never closed; stop may be called
// more than once.
func (b *Broadcaster) Subscribe() (changes <-chan struct{}, stop func()) {
	poke := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs == nil {
		b.subs = map[chan struct{}]struct{}{}
	}
	b.subs[poke] = struct{}{}
	return poke, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, poke)
	}
}

// Notify notifies the subscribers.
func (b *Broadcaster) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for poke := range b.subs {
		select {
		case poke <- struct{}{}:
		default: // a notification is pending
		}
	}
}
