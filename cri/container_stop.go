package cri

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopContainer sends the stop signal, and KILL after grace (rounded up to whole seconds; 0
// kills at once). The grace period begins with the signal, and the wait for a slot does not
// shorten it. It blocks until the container is dead. A missing container counts as stopped.
// If the container does not die, the error is context.DeadlineExceeded.
//
// A stop is never interrupted to let others pass: containerd sends the stop signal only
// once, even if the call was cancelled before the signal reached the container.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	seconds := int64(math.Ceil(max(grace, 0).Seconds()))
	_, err := c.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	err = mapError("stop container "+short(id), err)
	switch {
	case err == nil || gone(err):
		return nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Errorf("%w: it was to be killed and has not exited: its processes wait in the kernel for a device or a server, or the runtime hangs or is overloaded", err)
	}
	return err
}

// RemoveContainer removes a container that does not run, but none of its files. A missing
// container counts as removed.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := c.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if err := mapError("remove container "+short(id), err); err != nil && !gone(err) {
		return err
	}
	c.roster.removedContainer(id)
	return nil
}
