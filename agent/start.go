package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// start starts containers in order. One that cannot start holds up none of
// the others; only a runtime that does not answer ends the round.
func (w *worker) start(ctx context.Context, v *view) (did bool, err error) {
	d, step := v.in.desired, &v.step
	if len(step.Start) == 0 {
		return false, nil
	}
	if err := w.setUp(ctx, d); err != nil {
		return false, err
	}
	if err := w.alone(d, &v.seen, "CreateContainerError"); err != nil {
		for _, st := range step.Start {
			w.noteFailure(st.Container.Name, "", "CreateContainerError", err, step)
		}
		w.event(d, "", "Failed", "Error: "+err.Error())
		return false, nil
	}
	for _, st := range step.Start {
		if ctx.Err() != nil {
			return did, context.Cause(ctx)
		}
		made, err := w.startOne(ctx, d, v.seen.Sandboxes[0], st, step)
		did = did || made
		if err == nil && made && hasPostStart(st.Container) {
			return true, nil // the hook delays those that come after
		}
		if err == nil {
			continue
		}
		if errors.Is(err, pod.ErrUnavailable) || ctx.Err() != nil {
			return did, err
		}
		reason := pod.ReasonOf(err, "CreateContainerError")
		w.log.Debug("container does not start", "container", st.Container.Name, "reason", reason, "error", err)
		w.event(d, st.Container.Name, "Failed", "Error: "+err.Error())
		w.noteFailure(st.Container.Name, "", reason, err, step)
	}
	return did, nil
}

// alone says that nothing of the pod runs that the runtime does not know. A
// runtime that could not load a container when it was started, for want of disk
// say, never speaks of it again, while it runs on: a second one beside it would be
// the pod twice. The bundled runtime's is ended by whoever collects what lost
// containers left, soon after the runtime is ready.
func (w *worker) alone(d *pod.Desired, seen *pod.Observed, reason string) error {
	var known []string
	for i := range seen.Sandboxes {
		known = append(known, seen.Sandboxes[i].ID)
	}
	for i := range seen.Containers {
		known = append(known, seen.Containers[i].ID)
	}
	strays, err := w.agent.cfg.Cgroups.Strays(d.UID(), known)
	if err != nil {
		return pod.WithReason(reason, fmt.Errorf("look for containers that the runtime has lost: %w", err))
	}
	if len(strays) > 0 {
		return pod.WithReason(reason, fmt.Errorf("a container of this pod still runs that the container runtime has lost sight of: "+
			"nothing is started beside it; if it does not end, end the processes in %s", strings.Join(strays, ", ")))
	}
	return nil
}

// startOne starts one container; made says that the runtime was changed.
func (w *worker) startOne(ctx context.Context, d *pod.Desired, sandbox pod.Sandbox, st plan.Start, step *plan.Step) (made bool, err error) {
	call, cancel := lasting(ctx)
	defer cancel()
	cfg, name := &w.agent.cfg, st.Container.Name
	id := st.ID
	if id == "" {
		if id, err = w.create(call, d, sandbox, st, step); err != nil || id == "" {
			return false, err
		}
	}
	if err := cfg.Containers.StartContainer(call, id); err != nil {
		if errors.Is(err, pod.ErrUnavailable) || ctx.Err() != nil {
			return true, err
		}
		// Most runtimes keep the container as one that ended, which the next
		// look finds: restart policy and back-off apply to it as to any end.
		// Where it is still one that never ran, the failure holds it back.
		reason := pod.ReasonOf(err, "RunContainerError")
		w.agent.metrics.startedErrors.WithLabelValues(reason).Inc()
		w.log.Debug("container does not start", "container", name, "reason", reason, "error", err)
		w.event(d, name, "Failed", "Error: "+err.Error())
		w.noteFailure(name, id, reason, err, step)
		return true, nil
	}
	cfg.Events.ContainerEvent(d.Pod, name, v1.EventTypeNormal, "Started", "Container started")
	w.log.Info("container started", "container", name, "restarts", st.RestartCount)
	w.agent.metrics.started.Inc()
	w.memory = w.memory.Succeeded(name)
	w.told.warning = ""
	if hasPostStart(st.Container) {
		w.beginPostStart(d, st.Container, id, w.addressOf(&sandbox))
	}
	return true, nil
}

func hasPostStart(c *v1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PostStart != nil }

// create makes a container; an empty id says that its image is still to come.
func (w *worker) create(ctx context.Context, d *pod.Desired, sandbox pod.Sandbox, st plan.Start, step *plan.Step) (id string, err error) {
	cfg := &w.agent.cfg
	image, err := cfg.Images.Ensure(ctx, d.Pod, st.Container)
	if err != nil {
		return "", err
	}
	if !image.Ready {
		w.awaitImage(st.Container.Name, image, step)
		return "", nil
	}
	w.imageCame()
	mounts, err := cfg.Volumes.Mounts(d.Pod, st.Container)
	if err != nil {
		return "", pod.WithReason("CreateContainerConfigError", err)
	}
	id, err = cfg.Containers.CreateContainer(ctx, pod.ContainerRequest{
		Pod: d.Pod, Container: st.Container, Sandbox: sandbox, Source: d.Source, StartTime: w.startTime,
		RestartCount: st.RestartCount, Image: image, Mounts: mounts,
	})
	if errors.Is(err, pod.ErrNameReserved) {
		w.memory = w.memory.NameTaken(st.Container.Name, int64(st.RestartCount), time.Now())
	}
	if err != nil {
		return "", err
	}
	w.memory = w.memory.Resized(id, d.Pod, st.Container)
	cfg.Events.ContainerEvent(d.Pod, st.Container.Name, v1.EventTypeNormal, "Created", "Container created")
	return id, nil
}

// noteFailure holds a container's next try back.
func (w *worker) noteFailure(name, id, reason string, err error, step *plan.Step) {
	w.memory = w.memory.Failed(name, id, pod.Waiting{Reason: reason, Message: err.Error()}, time.Now())
	step.WakeAt = earliest(step.WakeAt, w.memory.Failures[name].NotBefore)
}

// awaitImage notes that a container waits for its image. The next round asks
// again whatever woke it: asking is a local look.
func (w *worker) awaitImage(name string, image pod.ImageState, step *plan.Step) {
	if w.imageSince.IsZero() {
		w.imageSince = time.Now()
	}
	w.memory = w.memory.Awaiting(name, pod.Waiting{Reason: image.Reason, Message: image.Message})
	step.WakeAt = earliest(step.WakeAt, image.RetryAt)
}

// imageCame ends the time that a pod's start spent on pulls.
func (w *worker) imageCame() {
	if !w.imageSince.IsZero() {
		w.pulling += time.Since(w.imageSince)
		w.imageSince = time.Time{}
	}
}
