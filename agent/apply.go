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

// A call that creates something is not abandoned lightly: its result is found again,
// but later. These limit how long a call in progress may go on when podd is stopping,
// or when the pod is to terminate. Most take less.
const (
	stopSlack = 5 * time.Second
	endSlack  = time.Second
)

// withSlack returns a context that outlives ctx by the slack for its cause.
func withSlack(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		slack := stopSlack
		if errors.Is(context.Cause(ctx), errTerminating) {
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

// apply performs a step. did says that it changed the runtime, so that another sync is
// due. After an error, the next sync decides anew about the rest.
func (w *worker) apply(ctx context.Context, v *view) (did bool, err error) {
	step := &v.step
	if step.SandboxChanged {
		w.agent.cfg.Events.Event(v.granted.Pod, v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	if len(step.Stop)+len(step.StopSandboxes) > 0 {
		if err := w.stop(ctx, v); err != nil {
			return true, err
		}
		did = true
	}
	if step.CreateSandbox {
		created, err := w.createSandbox(ctx, v)
		if err != nil {
			return true, err
		}
		did = did || created
	}
	resized, err := w.resizeBeforeStarts(ctx, v)
	if err != nil {
		return true, err
	}
	did = did || resized
	started, err := w.start(ctx, v)
	if err != nil {
		return true, err
	}
	did = did || started
	switch {
	case step.CleanUp: // dead sandboxes and containers are removed with the rest
		if err := w.setup(v).remove(ctx); err != nil {
			return true, err
		}
		did = true
	case len(step.RemoveContainers)+len(step.RemoveSandboxes) > 0:
		if err := w.removeDead(ctx, step); err != nil {
			return true, err
		}
		did = true
	}
	return did, nil
}

// createSandbox creates a sandbox and what it needs; created is false, without an
// error, while it waits for something.
func (w *worker) createSandbox(ctx context.Context, v *view) (created bool, err error) {
	d, step := v.granted, &v.step
	if by := v.seen.Foreign; by != "" {
		err := fmt.Errorf("another podd (instance %s) runs this pod on this container runtime: it starts here once it has ended there", by)
		w.recordWarning(d, "", "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		return false, recordedError{pod.WithReason(pod.ReasonCreatePodSandboxError, err)}
	}
	err = each(step.ReleaseSandboxes, func(id string) error {
		return ignoreNotFound(w.agent.cfg.Sandboxes.StopSandbox(ctx, id))
	})
	if err != nil {
		return false, fmt.Errorf("release the network of a dead sandbox: %w", err)
	}
	if err := w.ensureNoStrayContainers(d, &v.seen, pod.ReasonCreatePodSandboxError); err != nil {
		w.recordWarning(d, "", "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		return false, recordedError{err}
	}
	defer w.releaseStartSlot()
	return w.setup(v).create(ctx)
}

// sandboxInputs returns the inputs with which the sandbox was created or, if an earlier
// podd created it, those with which it would be created now.
func (w *worker) sandboxInputs(d *pod.Desired) (pod.SandboxInputs, error) {
	if w.starting.sandbox == nil {
		in, err := w.agent.cfg.Inputs.Sandbox(d.Pod)
		if err != nil {
			return in, err
		}
		w.starting.sandbox = &in
	}
	return *w.starting.sandbox, nil
}

// recordWarning emits a warning about a container, or about the pod if container is empty,
// once until it changes.
func (w *worker) recordWarning(d *pod.Desired, container, reason, message string) {
	if text := container + reason + message; w.reported.warning != text {
		w.reported.warning = text
		if container == "" {
			w.agent.cfg.Events.Event(d.Pod, v1.EventTypeWarning, reason, message)
		} else {
			w.agent.cfg.Events.ContainerEvent(d.Pod, container, v1.EventTypeWarning, reason, message)
		}
	}
}

// recordFailure emits a warning about a failed call. It emits none if the call was
// cancelled, or if the runtime does not respond, which concerns more than this pod.
func (w *worker) recordFailure(ctx context.Context, d *pod.Desired, reason, words string, err error) {
	if d.Pod.Name != "" && ctx.Err() == nil && !errors.Is(err, pod.ErrUnavailable) {
		w.recordWarning(d, "", reason, words+err.Error())
	}
}

// slowStart is how long a sandbox being started counts as CPU bound. If it takes
// longer, it waits for something (a network plugin, a runtime that hangs) and must
// not delay others.
const slowStart = 5 * time.Second

// removeDead removes dead containers and then dead sandboxes from the runtime.
func (w *worker) removeDead(ctx context.Context, step *plan.Step) error {
	err := each(step.RemoveContainers, func(id string) error {
		err := ignoreNotFound(w.agent.cfg.Containers.RemoveContainer(ctx, id))
		if err == nil {
			w.agent.cfg.Logs.ContainerRemoved(id, step.KeepLogs)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove containers: %w", err)
	}
	err = each(step.RemoveSandboxes, func(id string) error {
		err := ignoreNotFound(w.agent.cfg.Sandboxes.RemoveSandbox(ctx, id))
		if err == nil {
			w.agent.cfg.Logs.SandboxRemoved(id)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove sandbox: %w", err)
	}
	return nil
}

// each calls do for all items concurrently and joins the errors.
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
