package agent

import (
	"maps"
	"slices"
	"sync"

	"podd/internal/pod"
)

// checkpoints hold what podd must remember of pods across a restart, in memory and in a
// small file each, as long as the pod exists. Any goroutine may call them, but changes
// for the same pod must not be concurrent. A value does not change once it is stored.
type checkpoints[T any] struct {
	files checkpointFiles[T]

	mu   sync.Mutex // guards pods
	pods map[pod.UID]T
}

func newCheckpoints[T any](files checkpointFiles[T]) *checkpoints[T] {
	return &checkpoints[T]{files: files, pods: make(map[pod.UID]T)}
}

// get returns a pod's checkpoint.
func (c *checkpoints[T]) get(uid pod.UID) (v T, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, known = c.pods[uid]
	return v, known
}

// all lists the checkpoints.
func (c *checkpoints[T]) all() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.pods))
}

// save replaces a pod's checkpoint. After an error, a restart forgets it.
func (c *checkpoints[T]) save(v T) error {
	c.mu.Lock()
	c.pods[c.files.uid(&v)] = v
	c.mu.Unlock()
	return c.files.write(v)
}

// drop removes a pod's checkpoint, if there is one.
func (c *checkpoints[T]) drop(uid pod.UID) error {
	c.mu.Lock()
	_, known := c.pods[uid]
	delete(c.pods, uid)
	c.mu.Unlock()
	if !known {
		return nil
	}
	return c.files.remove(uid)
}

// read restores the checkpoints of an earlier podd. The error names those that could
// not be read, which are removed.
func (c *checkpoints[T]) read() error {
	found, err := c.files.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range found {
		c.pods[c.files.uid(&v)] = v
	}
	return err
}
