package agent

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// ErrUnknownPod says that no such pod has a worker: it is gone, or was rejected.
var ErrUnknownPod = errors.New("the pod is gone, or was rejected")

// Restart requests a restart of a pod's containers, in order and within its grace period: they stop
// as when the pod ends, init containers run again, and the pod keeps its UID, its address and its
// emptyDirs. With the name of a container, only that one is restarted, whatever its restart policy
// is. An error says why there will be none. Any goroutine may call it; it does not block.
func (a *Agent) Restart(uid pod.UID, container string) error {
	a.mu.Lock()
	w := a.workers[uid]
	a.mu.Unlock()
	if w == nil {
		return ErrUnknownPod
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.mail.Kill != nil || w.mail.End != nil:
		return errors.New("the pod is ending")
	case w.finished:
		return errors.New("the pod has run to its end")
	}
	if container == "" {
		w.mail.restartAll = true
	} else {
		spec, kind := pod.ContainerSpec(&w.mail.desired.Pod.Spec, container)
		switch {
		case spec == nil:
			return fmt.Errorf("the pod has no container %q", container)
		case kind == pod.InitContainer:
			return fmt.Errorf("%q is an init container, which runs again with the whole pod only: restart the pod", container)
		case kind == pod.EphemeralContainer:
			return fmt.Errorf("%q is an ephemeral container, which never restarts", container)
		}
		w.mail.restartContainers = append(w.mail.restartContainers, container)
	}
	w.wakeUrgentLocked()
	return nil
}

// requestRestarts passes requested restarts to plan's memory.
func (w *worker) requestRestarts(in mail, d *pod.Desired, seen pod.Observed, now time.Time) {
	if in.restartAll {
		w.memory = w.memory.RestartRequested(now)
		w.recordRestartRequest(d, "")
	}
	for _, name := range in.restartContainers {
		if c := seen.LatestContainer(name); c != nil && c.State == pod.ContainerRunning {
			w.memory = w.memory.ContainerRestartRequested(c)
			w.recordRestartRequest(d, name)
		}
	}
}

func (w *worker) recordRestartRequest(d *pod.Desired, container string) {
	w.log.Info("restarting on request", "container", container)
	const reason = "RestartRequested"
	if container == "" {
		w.agent.cfg.Events.Event(d.Pod, v1.EventTypeNormal, reason, "Restarting all containers: that was requested")
		return
	}
	w.agent.cfg.Events.ContainerEvent(d.Pod, container, v1.EventTypeNormal, reason, "Restarting container "+container+": that was requested")
}
