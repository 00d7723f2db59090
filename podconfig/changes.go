package podconfig

// Changes returns a channel that receives after changes of what Problems returns, and a
// function that ends the subscription. Many changes between two receives count as one.
// Subscribe first, then read Problems. The channel is never closed.
func (c *PodConfig) Changes() (<-chan struct{}, func()) { return c.changes.Subscribe() }
