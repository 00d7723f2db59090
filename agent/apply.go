package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// A call that makes something must not be abandoned lightly: what comes of it
// is found again, but later. These are how long one that is under way may go on
// once podd is stopping, and once the pod's end was asked for. Most take less.
const (
	stopSlack = 5 * time.Second
	endSlack  = time.Second
)

// lasting returns a context that outlives ctx by the slack of what ended it.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		slack := stopSlack
		if errors.Is(context.Cause(ctx), errEnded) {
			slack = endSlack
		}
		t := time.NewTimer(slack)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-out.Done():
		}
	})
	return out, func() { stop(); cancel(nil) }
}

// apply performs a step. did says that the runtime was changed, so that
// another look is due; with an error, what was not reached waits for the next
// round, which decides anew.
func (w *worker) apply(ctx context.Context, d *pod.Desired, seen pod.Observed, step *plan.Step) (did bool, err error) {
	if len(step.Stop)+len(step.StopSandboxes) > 0 {
		if err := w.stop(ctx, d, step); err != nil {
			return true, err
		}
		did = true
	}
	if step.CreateSandbox {
		if err := w.createSandbox(ctx, d, step); err != nil {
			return true, err
		}
		did = true
	}
	started, err := w.start(ctx, d, seen, step)
	if err != nil {
		return true, err
	}
	did = did || started
	if step.CleanUp {
		if err := w.cleanUp(ctx, d); err != nil {
			return true, err
		}
	}
	if len(step.RemoveContainers)+len(step.RemoveSandboxes) > 0 {
		if err := w.remove(ctx, step); err != nil {
			return true, err
		}
		did = true
	}
	if step.Phase == pod.PhaseGone {
		if d.Pod.Name != "" {
			w.agent.graves.add(graveOf(d.Pod, time.Now().Add(w.agent.cfg.LogRetention)))
		}
		w.log.Info("pod is gone")
	}
	return did || step.CleanUp, nil
}

// stop ends containers side by side, and then sandboxes: stopping a sandbox
// kills what still runs in it.
func (w *worker) stop(ctx context.Context, d *pod.Desired, step *plan.Step) error {
	err := each(step.Stop, func(s plan.Stop) error {
		w.agent.cfg.Events.ContainerEvent(d.Pod, s.Name, v1.EventTypeNormal, "Killing", s.Message)
		w.log.Info("stopping container", "container", s.Name, "grace", s.Grace, "event", s.Message)
		return ignoreNotFound(w.agent.cfg.Containers.StopContainer(ctx, s.ID, s.Grace))
	})
	if err != nil {
		return fmt.Errorf("stop containers: %w", err)
	}
	err = each(step.StopSandboxes, func(id string) error {
		return ignoreNotFound(w.agent.cfg.Sandboxes.StopSandbox(ctx, id))
	})
	if err != nil {
		return fmt.Errorf("stop sandbox: %w", err)
	}
	return nil
}

// setUp makes what a sandbox or a container needs on disk, once in this
// worker's life: the mounter recognises what an earlier podd left.
func (w *worker) setUp(ctx context.Context, d *pod.Desired) error {
	if w.mounted {
		return nil
	}
	if err := w.agent.cfg.Volumes.SetUp(ctx, d.Pod); err != nil {
		if ctx.Err() != nil {
			return err
		}
		w.event(d, "", pod.ReasonOf(err, "FailedMount"), err.Error())
		return toldError{err}
	}
	w.mounted = true
	return nil
}

func (w *worker) createSandbox(ctx context.Context, d *pod.Desired, step *plan.Step) error {
	if step.SandboxChanged {
		w.agent.cfg.Events.Event(d.Pod, v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	err := each(step.ReleaseSandboxes, func(id string) error {
		return ignoreNotFound(w.agent.cfg.Sandboxes.StopSandbox(ctx, id))
	})
	if err != nil {
		return fmt.Errorf("release the network of a dead sandbox: %w", err)
	}
	if err := w.setUp(ctx, d); err != nil {
		return err
	}
	release, err := w.agent.place(ctx)
	if err != nil {
		return err
	}
	defer release()
	w.created = true
	call, cancel := lasting(ctx)
	defer cancel()
	_, err = w.agent.cfg.Sandboxes.RunSandbox(call, pod.SandboxRequest{
		Pod: d.Pod, Source: d.Source, Attempt: step.Attempt, StartTime: w.startTime,
	})
	if errors.Is(err, pod.ErrNameReserved) {
		w.memory = w.memory.NameTaken("", int64(step.Attempt), time.Now())
	}
	if err != nil && ctx.Err() == nil {
		reason := "FailedCreatePodSandBox"
		if errors.Is(err, pod.ErrNetworkNotReady) {
			reason = "NetworkNotReady"
		}
		w.event(d, "", reason, "Failed to create pod sandbox: "+err.Error())
		return toldError{fmt.Errorf("create pod sandbox: %w", err)}
	}
	return err
}

// event is a warning about a container, or about the pod where container is
// empty. It is said once until it changes.
func (w *worker) event(d *pod.Desired, container, reason, message string) {
	if text := container + reason + message; w.told.warning != text {
		w.told.warning = text
		if container == "" {
			w.agent.cfg.Events.Event(d.Pod, v1.EventTypeWarning, reason, message)
		} else {
			w.agent.cfg.Events.ContainerEvent(d.Pod, container, v1.EventTypeWarning, reason, message)
		}
	}
}

// slowStart is how long a sandbox being started counts as work for the
// processor. One that takes longer waits for something (a network plugin, a
// runtime that hangs) and must not keep others waiting with it.
const slowStart = 5 * time.Second

// place waits for a place among the sandboxes being started. The place is free
// again after release, or after slowStart.
func (a *Agent) place(ctx context.Context) (release func(), err error) {
	select {
	case a.starts <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	leave := sync.OnceFunc(func() { <-a.starts })
	late := time.AfterFunc(slowStart, leave)
	return func() {
		late.Stop()
		leave()
	}, nil
}

// start starts containers in order. One that cannot start holds up none of
// the others; only a runtime that does not answer ends the round.
func (w *worker) start(ctx context.Context, d *pod.Desired, seen pod.Observed, step *plan.Step) (did bool, err error) {
	if len(step.Start) == 0 {
		return false, nil
	}
	if err := w.setUp(ctx, d); err != nil {
		return false, err
	}
	for _, st := range step.Start {
		if ctx.Err() != nil {
			return did, context.Cause(ctx)
		}
		made, err := w.startOne(ctx, d, seen.Sandboxes[0], st, step)
		did = did || made
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
	return true, nil
}

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

// remove takes dead containers, then dead sandboxes, out of the runtime.
func (w *worker) remove(ctx context.Context, step *plan.Step) error {
	err := each(step.RemoveContainers, func(id string) error {
		return ignoreNotFound(w.agent.cfg.Containers.RemoveContainer(ctx, id))
	})
	if err != nil {
		return fmt.Errorf("remove containers: %w", err)
	}
	err = each(step.RemoveSandboxes, func(id string) error {
		return ignoreNotFound(w.agent.cfg.Sandboxes.RemoveSandbox(ctx, id))
	})
	if err != nil {
		return fmt.Errorf("remove sandbox: %w", err)
	}
	return nil
}

// cleanUp removes what the pod has outside the runtime, once nothing of it runs
// and before its sandbox is removed: the sandbox is what a podd that is killed
// in between finds again. A mount that does not go stays the mounter's debt,
// which it retries and shows: it does not keep the pod's name taken for ever
// (kubernetes/kubernetes#51835).
func (w *worker) cleanUp(ctx context.Context, d *pod.Desired) error {
	if err := w.agent.cfg.Cgroups.RemoveCgroup(ctx, d.Pod); err != nil {
		return fmt.Errorf("remove the pod's cgroup: %w", err)
	}
	if err := w.agent.cfg.Volumes.TearDown(ctx, w.uid); err != nil {
		w.event(d, "", "FailedUnMount", err.Error())
	}
	if d.Pod.Name != "" {
		if err := w.agent.graves.carve(graveOf(d.Pod, time.Now().Add(w.agent.cfg.LogRetention))); err != nil {
			w.log.Warn("a restart of podd will forget to remove the pod's logs", "error", err)
		}
	}
	return nil
}

// each calls do for all items at the same time and joins their errors.
func each[T any](items []T, do func(T) error) error {
	if len(items) == 1 {
		return do(items[0])
	}
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { errs[i] = do(item) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func ignoreNotFound(err error) error {
	if errors.Is(err, pod.ErrNotFound) {
		return nil
	}
	return err
}
