package podconfig

import "podd/internal/pod"

// Seen is SeenAll of one source.
func (c *PodConfig) Seen(source pod.Source) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[source]
}
