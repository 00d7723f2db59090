package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// noHooks is the default of Config.Hooks.
type noHooks struct{}

func (noHooks) Run(context.Context, pod.HookRequest) error { return nil }

// postStart is a hook that this podd started.
type postStart struct {
	pod.Hook
	cancel context.CancelFunc
	// stopped: the container is being stopped meanwhile.
	stopped bool
}

// beginPostStart runs a container's hook outside the worker's syncs, and wakes the
// worker when it ends.
func (w *worker) beginPostStart(d *pod.Desired, c *v1.Container, id, podIP string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	hook := &postStart{Hook: pod.Hook{State: pod.HookRunning}}
	w.postStarts[id] = hook
	hook.cancel = w.spawn(func(ctx context.Context) {
		err := w.agent.cfg.Hooks.Run(ctx, pod.HookRequest{
			Pod: d.Pod, Container: c, ContainerID: id, Handler: c.Lifecycle.PostStart, PodIP: podIP,
		})
		w.postStartEnded(ctx, d, c, hook, err)
	})
}

// postStartEnded records the result of a hook. One that was cancelled, since its
// container is being stopped or podd stops, has no event: it did not fail by itself.
func (w *worker) postStartEnded(ctx context.Context, d *pod.Desired, c *v1.Container, hook *postStart, err error) {
	w.mu.Lock()
	failed := err != nil && !hook.stopped && ctx.Err() == nil
	w.mu.Unlock()
	if failed {
		// without the message, which may contain a server's response
		w.agent.cfg.Events.ContainerEvent(d.Pod, c.Name, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
		w.log.Info("postStart hook failed", "container", c.Name, "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	hook.State = pod.HookSucceeded
	if err != nil {
		hook.Hook = pod.Hook{State: pod.HookFailed, Message: err.Error()}
	}
	w.wakeLocked()
}

// postStartStopped records that a container is being stopped, which cancels its hook.
func (w *worker) postStartStopped(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if hook := w.postStarts[id]; hook != nil {
		hook.stopped = true
	}
}

// observeHooks cancels the hooks of containers that are gone, and returns the states
// of the others by container ID.
func (w *worker) observeHooks(seen pod.Observed) map[string]pod.Hook {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.postStarts) == 0 {
		return nil
	}
	states := make(map[string]pod.ContainerState, len(seen.Containers))
	for i := range seen.Containers {
		states[seen.Containers[i].ID] = seen.Containers[i].State
	}
	hooks := make(map[string]pod.Hook, len(w.postStarts))
	for id, hook := range w.postStarts {
		state, there := states[id]
		if !there || state == pod.ContainerExited {
			hook.cancel()
		}
		if !there {
			delete(w.postStarts, id)
			continue
		}
		hooks[id] = hook.Hook
	}
	return hooks
}

// firstPreStop says whether a container's preStop hook has not run yet, and records
// that it does now.
func (w *worker) firstPreStop(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.preStopped[id] {
		return false
	}
	w.preStopped[id] = true
	return true
}

// preStop runs a container's hook, and returns when the hook or the grace period has ended.
// A hook that takes longer continues beside the stop signal, as in the kubelet: the
// container may be waiting for what the hook does. The hook ends with its container.
func (w *worker) preStop(inTime context.Context, d *pod.Desired, op *containerStop, s plan.Stop) {
	done := make(chan struct{})
	podIP := op.podIP
	op.hooked(w.spawn(func(ctx context.Context) {
		defer close(done)
		err := w.agent.cfg.Hooks.Run(ctx, pod.HookRequest{
			Pod: d.Pod, Container: s.PreStop, ContainerID: s.ID, Handler: s.PreStop.Lifecycle.PreStop, PodIP: podIP,
		})
		left, _ := op.remaining()
		switch {
		case err == nil:
		case ctx.Err() != nil && (!closed(op.ended) || time.Now().Before(left.Until)):
			w.log.Info("preStop hook was interrupted: its container has exited, or podd is stopping", "container", s.Name)
		default:
			w.agent.cfg.Events.ContainerEvent(d.Pod, s.Name, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
			w.log.Info("preStop hook failed", "container", s.Name, "error", err)
		}
	}))
	select {
	case <-done:
	case <-inTime.Done():
	}
}

// podIP is the address at which a container is reached from the node: its sandbox's,
// or Config.HostIP on the host's network.
func (w *worker) podIP(seen pod.Observed, containerID string) string {
	sandbox := ""
	for i := range seen.Containers {
		if seen.Containers[i].ID == containerID {
			sandbox = seen.Containers[i].SandboxID
		}
	}
	for i := range seen.Sandboxes {
		if seen.Sandboxes[i].ID == sandbox {
			return w.addressOf(&seen.Sandboxes[i])
		}
	}
	return ""
}

func (w *worker) addressOf(s *pod.Sandbox) string {
	if ips := pod.PodIPs(s.IPs, w.agent.cfg.NodeIPs); len(ips) > 0 {
		return ips[0]
	}
	if s.HostNetwork {
		return w.agent.cfg.HostIP()
	}
	return ""
}
