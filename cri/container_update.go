package cri

import (
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
)

// UpdateContainer sets a container's resources to those in the pod's spec, the same that
// CreateContainer would send. They apply to a running container at once, and to a created
// one at its start. The next Observe queries them again.
func (c *Client) UpdateContainer(ctx context.Context, id string, p *v1.Pod, ctr *v1.Container) error {
	_, err := c.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: spec.Resources(c.spec, p, ctr),
	})
	// Also after an error, because it is unknown how far the runtime got.
	c.invalidateMemo(p.UID)
	return mapError("", err)
}

// ReopenContainerLog makes the runtime write to a new file at the log's path,
// after the old one was renamed. It fails for a container that does not run.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := c.runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return mapError("reopen the log of container "+short(id), err)
}
