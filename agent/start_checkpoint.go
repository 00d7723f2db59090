package agent

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// startCheckpoint lists the containers of a pod with a pending start: podd began it, and it
// is not done. A start is done once the runtime has answered and the postStart hook, if
// there is one, has succeeded. After podd was killed in between, the checkpoint tells the
// next podd which failures its own end caused. It starts such a container again and runs
// such a hook again, before the container shows as running.
type startCheckpoint struct {
	UID pod.UID `json:"uid"`
	// Source is the pod's source.
	Source pod.Source `json:"source,omitempty"`
	// Pending has the IDs of the containers, by name.
	Pending map[string]string `json:"begun"`
}

// newStartCheckpoints stores checkpoints of starts in a directory.
func newStartCheckpoints(dir string) *checkpoints[startCheckpoint] {
	return newCheckpoints(newCheckpointFiles(dir, "which containers of a pod were being started", func(s *startCheckpoint) pod.UID { return s.UID }, nil))
}

// beginStart checkpoints that a container's start begins, if it matters how that start
// ends. Only a few starts pay for the write.
func (w *worker) beginStart(d *pod.Desired, st plan.Start, id string) {
	if !st.PostStart && !st.NoRetry || w.starting.pendingStarts[st.Container.Name] == id {
		return
	}
	next := maps.Clone(w.starting.pendingStarts)
	if next == nil {
		next = make(map[string]string)
	}
	next[st.Container.Name] = id
	w.saveStarts(d, next)
}

// startDone removes a container from the checkpoint.
func (w *worker) startDone(d *pod.Desired, name string) {
	if _, pending := w.starting.pendingStarts[name]; !pending {
		return
	}
	next := maps.Clone(w.starting.pendingStarts)
	delete(next, name)
	w.saveStarts(d, next)
}

func (w *worker) saveStarts(d *pod.Desired, pending map[string]string) {
	w.starting.pendingStarts = pending
	var err error
	if len(pending) == 0 {
		err = w.agent.pendingStarts.drop(w.uid)
	} else {
		err = w.agent.pendingStarts.save(startCheckpoint{UID: w.uid, Source: d.Source, Pending: pending})
	}
	if err != nil {
		w.log.Warn("cannot save which containers of this pod are being started: if podd is killed meanwhile, their start or postStart hook may count as failed, or as done",
			"error", err)
	}
}

// resumeStarts looks at the outcome of the pending starts. A start that is done
// leaves the checkpoint. A postStart hook that does not run and did not finish runs
// again, unless its container is being stopped.
func (w *worker) resumeStarts(v *view) {
	for name, id := range w.starting.pendingStarts {
		c := v.seen.LatestContainer(name)
		if c == nil {
			continue // what the runtime shows may be older than the container
		}
		spec, _ := pod.ContainerSpec(&v.granted.Pod.Spec, name)
		switch {
		case c.ID != id || spec == nil:
			w.startDone(v.granted, name)
		case c.State == pod.ContainerRunning && hasPostStart(spec):
			w.resumePostStart(v, spec, id)
		case c.State == pod.ContainerRunning, c.State == pod.ContainerExited && !c.NeverRan:
			w.startDone(v.granted, name)
		}
	}
}

// resumePostStart runs the hook of a running container if its start is pending and this
// podd has not run the hook.
func (w *worker) resumePostStart(v *view, spec *v1.Container, id string) {
	w.mu.Lock()
	hook := w.postStarts[id]
	succeeded := hook != nil && hook.State == pod.HookSucceeded
	w.mu.Unlock()
	switch {
	case succeeded:
		w.startDone(v.granted, spec.Name)
	case hook == nil && v.in.Kill == nil && v.in.End == nil && w.stops.byID[id] == nil && w.phase < pod.PhaseTerminating:
		w.log.Info("postStart hook runs again: it is not known to have run to its end", "container", spec.Name)
		w.beginPostStart(v.granted, spec, id, w.podIP(v.seen, id))
	}
}

func hasPostStart(c *v1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PostStart != nil }
