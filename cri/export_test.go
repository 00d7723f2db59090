package cri

import (
	"maps"
	"slices"

	"podd/internal/pod"
)

// Memos are the pods of whose looks something is kept.
func (c *Client) Memos() []pod.UID {
	c.memoMu.Lock()
	defer c.memoMu.Unlock()
	return slices.Sorted(maps.Keys(c.memo))
}
