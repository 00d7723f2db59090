package cri

import (
	"maps"
	"slices"
	"time"

	"podd/internal/pod"
)

// BoundCreates sets how long RunPodSandbox and CreateContainer may take.
func (c *Conn) BoundCreates(d time.Duration) { c.createTimeout = d }

// Memos are the pods of whose looks something is kept.
func (c *Client) Memos() []pod.UID {
	c.memoMu.Lock()
	defer c.memoMu.Unlock()
	return slices.Sorted(maps.Keys(c.memo))
}
