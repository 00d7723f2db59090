// Package broadcast tells any number of readers that something changed, not what:
// each looks for itself.
package broadcast

import "sync"

// Broadcaster pokes those who subscribed. The zero value has no subscribers and
// is ready. Anyone may call its methods at any time; none of them blocks.
type Broadcaster struct {
	mu   sync.Mutex
	subs map[chan struct{}]struct{}
}

// Subscribe returns a channel that receives after each Notify from now on, until
// stop returns. Several notifications between two receptions are one: subscribe
// first, then read what may change. The channel is never closed; stop may be
// called more than once.
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

// Notify tells the subscribers.
func (b *Broadcaster) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for poke := range b.subs {
		select {
		case poke <- struct{}{}:
		default: // told already, and has not looked since
		}
	}
}
