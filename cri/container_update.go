package cri

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// UpdateContainer sets a container's resources to those in the pod's spec, as if it were created
// with them. They apply to a running container at once, and to a created one at its start. The
// next Observe queries them again.
func (c *Client) UpdateContainer(ctx context.Context, id string, p *v1.Pod, ctr *v1.Container) error {
	_, err := c.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: spec.UpdatedResources(c.spec, p, ctr),
	})
	// Also after an error, because it is unknown how far the runtime got.
	c.invalidateMemo(p.UID)
	return mapError("", err)
}

// UpdateSandbox announces the new resources of a sandbox's pod, and its overhead, to the
// runtime (CRI's UpdatePodSandboxResources, KEP-1287). A runtime that runs the pod in a virtual
// machine resizes the machine, and plugins of the runtime may reject the change. It is no error
// if the runtime does not know the call or the sandbox.
func (c *Client) UpdateSandbox(ctx context.Context, id string, p *v1.Pod, r pod.ContainerResources) error {
	overhead, rest := spec.SandboxUpdate(c.spec, p, r)
	_, err := c.runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: id, Overhead: overhead, Resources: rest})
	if err := mapError("update the resources of pod sandbox "+short(id), err); err != nil && !gone(err) && !isUnimplemented(err) {
		return err
	}
	return nil
}

// isUnimplemented says that the runtime does not know a call. containerd 2.2 returns the code
// Unknown, and says so only in the message (containerd/containerd#13023).
func isUnimplemented(err error) bool {
	var call *callError
	return errors.Is(err, pod.ErrUnimplemented) ||
		errors.As(err, &call) && call.code == codes.Unknown && strings.Contains(call.message, "not implemented")
}

// ReopenContainerLog makes the runtime write to a new file at the log's path,
// after the old one was renamed. It fails for a container that does not run.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := c.runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return mapError("reopen the log of container "+short(id), err)
}
