package cri

import (
	"context"
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Checkpoint writes a checkpoint of a running container to a file, an archive, and leaves
// the container running (KEP-2008). CRI counts in whole seconds: a timeout is rounded up,
// and 0 means the runtime's own. A runtime that cannot write checkpoints (containerd
// without criu) says why in its error.
func (c *Client) Checkpoint(ctx context.Context, id, file string, timeout time.Duration) error {
	_, err := c.runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{
		ContainerId: id, Location: file, Timeout: int64(math.Ceil(max(timeout, 0).Seconds())),
	})
	return mapError("checkpoint container", err)
}
