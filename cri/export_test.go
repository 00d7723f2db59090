package cri

import (
	"context"
	"maps"
	"slices"
	"time"

	"podd/internal/pod"
)

// BoundCreates sets how long RunPodSandbox and CreateContainer may take.
func (c *Conn) BoundCreates(d time.Duration) { c.createTimeout = d }

// Memos are the pods with a memo.
func (c *Client) Memos() []pod.UID {
	c.memoMu.Lock()
	defer c.memoMu.Unlock()
	return slices.Sorted(maps.Keys(c.memo))
}

// StreamSettled says that events are certainly sent, which else takes a second.
func (c *Client) StreamSettled() { c.roster.markStreamReady(0) }

// Relies says whether the roster's entries are reliable: the event stream is open.
func (c *Client) Relies() bool {
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	return c.roster.reliableSince != 0
}

// ListsWaiting is how many wait for a list that is not being made yet.
func (c *Client) ListsWaiting() int {
	c.lister.mu.Lock()
	defer c.lister.mu.Unlock()
	return len(c.lister.waiting)
}

// AskSandbox is one status call.
func (c *Client) AskSandbox(ctx context.Context, id string) error {
	_, err := c.getSandboxStatus(ctx, id)
	return err
}

// Dropped is how many connections were dropped because they stood still.
func (c *Conn) Dropped() uint64 { return c.stall.dropped.Load() }

// RestOf is when a call makes the runtime work at nothing.
var RestOf = restOf

// EndsAtOnce is how many calls of each kind that ends a pod may be active.
var EndsAtOnce = maxActiveStops
