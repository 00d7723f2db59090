package agent

import (
	"slices"

	"podd/internal/pod"
)

// withExited returns the checkpoint with the terminated containers that the runtime
// shows and the checkpoint lacks; changed says that there are any.
func (k completionCheckpoint) withExited(d *pod.Desired, seen pod.Observed) (next completionCheckpoint, changed bool) {
	next = k
	for spec := range pod.ContainerSpecs(&d.Pod.Spec) {
		c := seen.LatestContainer(spec.Name)
		if c == nil || c.State != pod.ContainerExited || k.has(func(known pod.Container) bool { return known.Name == c.Name }) {
			continue
		}
		last := *c
		last.Kept, last.GracePeriod, last.Hash, last.LogPath = nil, nil, "", ""
		next.Containers = append(slices.Clip(next.Containers), last)
		changed = true
	}
	return next, changed
}

func (k completionCheckpoint) has(is func(pod.Container) bool) bool {
	return slices.ContainsFunc(k.Containers, is)
}

// addLostContainers returns the observed pod with the terminated containers that the
// runtime has lost.
func (k completionCheckpoint) addLostContainers(seen pod.Observed) pod.Observed {
	for _, c := range k.Containers {
		if !slices.ContainsFunc(seen.Containers, func(s pod.Container) bool { return s.ID == c.ID }) {
			seen.Containers = append(slices.Clip(seen.Containers), c)
		}
	}
	return seen
}

// saveCompletion checkpoints that a pod has completed, and how its containers ended, as
// long as the pod is desired. It cannot rely on the runtime's records: they are deleted
// when the disk is full. For a pod that the node terminated, saveEnd saves the rest.
func (w *worker) saveCompletion(v *view) {
	if !v.step.Completed {
		return
	}
	checkpoint := w.completion.record
	checkpoint.UID, checkpoint.Source, checkpoint.StartTime = w.uid, v.granted.Source, w.startTime
	checkpoint, changed := checkpoint.withExited(v.granted, v.seen)
	if end := v.step.End; end != nil {
		if changed {
			checkpoint.Termination, w.completion.record = *end, checkpoint
			if err := w.agent.completions.save(checkpoint); err != nil {
				w.log.Warn("cannot save how the containers of this pod ended: a restart of podd forgets it if the runtime does, too", "error", err)
			}
		}
		return
	}
	w.completion.reached = true
	if w.reported.completionSaved && !changed {
		return
	}
	w.completion.record = checkpoint
	if err := w.agent.completions.save(checkpoint); err != nil && !w.reported.completionSaved {
		w.log.Warn("cannot save that this pod has completed: a restart of podd forgets it if the runtime does, too", "error", err)
	}
	w.reported.completionSaved = true
}
