package node

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/podlogs"
)

// Log implements server.Runtime.
func (a serverRuntime) Log(ctx context.Context, p *v1.Pod, containerID string) (podlogs.Log, error) {
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
				a.awaitTermination(ctx, p.UID, containerID)
			}()
		}
		return podlogs.Log{Path: c.LogPath, Ended: ended}, nil
	}
	return podlogs.Log{}, fmt.Errorf("the runtime does not have container %s any more", containerID)
}

// awaitTermination returns once a container that ran has ended, or when ctx ends.
func (a serverRuntime) awaitTermination(ctx context.Context, uid pod.UID, containerID string) {
	changes, stop := a.status.Changes()
	defer stop()
	for {
		switch p := a.status.Pod(uid); {
		case statusShowsTerminated(p, containerID):
			return
		case !statusShowsRunning(p, containerID) && !a.isRunning(ctx, uid, containerID):
			return // the container was replaced twice meanwhile
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return
		}
	}
}

// isRunning asks the runtime whether a container runs. The status shows a container as waiting
// while its postStart hook runs. If the runtime does not answer, isRunning returns true.
func (a serverRuntime) isRunning(ctx context.Context, uid pod.UID, containerID string) bool {
	seen, err := a.client.Observe(ctx, uid)
	return err != nil || slices.ContainsFunc(seen.Containers, func(c pod.Container) bool {
		return c.ID == containerID && c.State == pod.ContainerRunning
	})
}

// statusShowsTerminated reports whether a pod is gone, or shows that one of its containers has
// ended.
func statusShowsTerminated(p *v1.Pod, containerID string) bool {
	if p == nil {
		return true
	}
	for c := range pod.ContainerStatuses(&p.Status) {
		for _, state := range []v1.ContainerState{c.State, c.LastTerminationState} {
			if state.Terminated != nil && pod.RuntimeID(state.Terminated.ContainerID) == containerID {
				return true
			}
		}
	}
	return false
}

func statusShowsRunning(p *v1.Pod, containerID string) bool {
	for c := range pod.ContainerStatuses(&p.Status) {
		if c.State.Running != nil && pod.RuntimeID(c.ContainerID) == containerID {
			return true
		}
	}
	return false
}
