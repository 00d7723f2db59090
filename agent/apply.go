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
func (w *worker) apply(ctx context.Context, v *view) (did bool, err error) {
	d, step := v.in.desired, &v.step
	if len(step.Stop)+len(step.StopSandboxes) > 0 {
		if err := w.stop(ctx, v); err != nil {
			return true, err
		}
		did = true
	}
	if step.CreateSandbox {
		if err := w.createSandbox(ctx, v); err != nil {
			return true, err
		}
		did = true
	}
	started, err := w.start(ctx, v)
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
	if len(step.Resize) > 0 {
		resized, err := w.resize(ctx, d, step)
		if err != nil {
			return true, err
		}
		did = did || resized
	}
	if step.Phase == pod.PhaseGone {
		// Last of all: without it, what a podd that is killed here has left in the
		// runtime would look like a pod that is to run on.
		if err := w.agent.ends.drop(w.uid); err != nil {
			return true, fmt.Errorf("forget that the pod had ended: %w", err)
		}
		if d.Pod.Name != "" {
			w.agent.graves.add(graveOf(d.Pod, time.Now().Add(w.agent.cfg.LogRetention)))
		}
		w.log.Info("pod is gone")
	}
	return did || step.CleanUp, nil
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

func (w *worker) createSandbox(ctx context.Context, v *view) error {
	d, step := v.in.desired, &v.step
	if by := v.seen.Foreign; by != "" {
		err := fmt.Errorf("another podd (instance %s) runs this pod on this container runtime: it runs here when it has ended there", by)
		w.event(d, "", "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		return toldError{pod.WithReason("CreatePodSandboxError", err)}
	}
	if step.SandboxChanged {
		w.agent.cfg.Events.Event(d.Pod, v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	err := each(step.ReleaseSandboxes, func(id string) error {
		return ignoreNotFound(w.agent.cfg.Sandboxes.StopSandbox(ctx, id))
	})
	if err != nil {
		return fmt.Errorf("release the network of a dead sandbox: %w", err)
	}
	if err := w.alone(d, &v.seen, "CreatePodSandboxError"); err != nil {
		w.event(d, "", "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		return toldError{err}
	}
	if err := w.agent.cfg.Cgroups.EnsureCgroup(ctx, d.Pod); err != nil {
		if ctx.Err() == nil {
			w.event(d, "", "FailedCreatePodContainer", "unable to ensure pod container exists: "+err.Error())
			err = toldError{err}
		}
		return err
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
	switch {
	case errors.Is(err, pod.ErrNameLost):
		w.memory = w.memory.NameLost("", int64(step.Attempt))
	case errors.Is(err, pod.ErrNameReserved):
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

// tellFailure is a warning about a call that went wrong; that the runtime does
// not answer is no matter of one pod, nor is that the call was given up.
func (w *worker) tellFailure(ctx context.Context, d *pod.Desired, reason, words string, err error) {
	if d.Pod.Name != "" && ctx.Err() == nil && !errors.Is(err, pod.ErrUnavailable) {
		w.event(d, "", reason, words+err.Error())
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

// remove takes dead containers, then dead sandboxes, out of the runtime.
func (w *worker) remove(ctx context.Context, step *plan.Step) error {
	err := each(step.RemoveContainers, func(id string) error {
		return ignoreNotFound(w.agent.cfg.Containers.RemoveContainer(ctx, id, step.KeepLogs))
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
		if err := w.agent.graves.stones.write(graveOf(d.Pod, time.Now().Add(w.agent.cfg.LogRetention))); err != nil {
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
