package node

import (
	"context"
	"fmt"
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

// awaitEnd returns when a container that ran is not shown as running any more, or ctx ends.
func (a answers) awaitEnd(ctx context.Context, uid pod.UID, containerID string) {
	changes, stop := a.status.Changes()
	defer stop()
	for shownRunning(a.status.Pod(uid), containerID) {
		select {
		case <-changes:
		case <-ctx.Done():
			return
		}
	}
}

func shownRunning(p *v1.Pod, containerID string) bool {
	if p == nil {
		return false
	}
	for _, all := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range all {
			if all[i].State.Running != nil && strings.HasSuffix(all[i].ContainerID, "://"+containerID) {
				return true
			}
		}
	}
	return false
}
