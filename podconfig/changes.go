package podconfig

// Changes returns a channel that receives after changes of what Problems
// returns, and a function that ends that. Many changes between two receptions
// are one. Subscribe first, then read Problems. The channel is never closed.
func (c *PodConfig) Changes() (<-chan struct{}, func()) {
	poke := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers[poke] = struct{}{}
	return poke, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, poke)
	}
}

// pokeLocked tells those who subscribed; it never blocks on one.
func (c *PodConfig) pokeLocked() {
	for poke := range c.watchers {
		select {
		case poke <- struct{}{}:
		default:
		}
	}
}
