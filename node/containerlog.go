package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/podlogs"
)

// Log implements server.Runtime.
func (a answers) Log(ctx context.Context, p *v1.Pod, containerID string) (podlogs.Log, error) {
	seen, err := a.client.Observe(ctx, p.UID)
	if err != nil {
		return podlogs.Log{}, fmt.Errorf("find the log of container %s: %w", containerID, err)
	}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if c.ID != containerID {
			continue
		}
		ended := make(chan struct{})
		if c.State != pod.ContainerRunning {
			close(ended)
		} else {
			go func() {
				defer close(ended)
				a.awaitEnd(ctx, p.UID, containerID)
			}()
		}
		return podlogs.Log{Path: c.LogPath, Ended: ended}, nil
	}
	return podlogs.Log{}, fmt.Errorf("the runtime does not have container %s any more", containerID)
}

// awaitEnd returns when a container that ran has ended, or ctx ends.
func (a answers) awaitEnd(ctx context.Context, uid pod.UID, containerID string) {
	changes, stop := a.status.Changes()
	defer stop()
	for {
		switch p := a.status.Pod(uid); {
		case shownEnded(p, containerID):
			return
		case !shownRunning(p, containerID) && !a.runs(ctx, uid, containerID):
			return // it was replaced twice meanwhile
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return
		}
	}
}

// runs asks the runtime: the status shows a container as waiting while its postStart hook
// runs. What the runtime does not say is taken for a yes.
func (a answers) runs(ctx context.Context, uid pod.UID, containerID string) bool {
	seen, err := a.client.Observe(ctx, uid)
	return err != nil || slices.ContainsFunc(seen.Containers, func(c pod.Container) bool {
		return c.ID == containerID && c.State == pod.ContainerRunning
	})
}

// shownEnded says that a pod is gone, or shows that a container of it has ended.
func shownEnded(p *v1.Pod, containerID string) bool {
	return p == nil || anyStatus(p, func(c *v1.ContainerStatus) bool {
		return c.State.Terminated != nil && is(c.State.Terminated.ContainerID, containerID) ||
			c.LastTerminationState.Terminated != nil && is(c.LastTerminationState.Terminated.ContainerID, containerID)
	})
}

func shownRunning(p *v1.Pod, containerID string) bool {
	return anyStatus(p, func(c *v1.ContainerStatus) bool { return c.State.Running != nil && is(c.ContainerID, containerID) })
}

// is compares an ID of a status with the runtime's.
func is(shown, containerID string) bool { return strings.HasSuffix(shown, "://"+containerID) }

func anyStatus(p *v1.Pod, has func(*v1.ContainerStatus) bool) bool {
	for _, all := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range all {
			if has(&all[i]) {
				return true
			}
		}
	}
	return false
}
