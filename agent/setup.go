package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// setup is all that a pod has on the node beside its containers, in the order in
// which it is made. It is undone in reverse: released when the pod has run to its
// end and is still wanted, removed when the pod goes. Each step may be done again
// after any outcome, and undone whether or not it was done, by this podd or an
// earlier one.
type setup []setupStep

// setupStep is one thing that a pod has on the node.
type setupStep struct {
	name string
	// do makes it; ready is false, without an error, where it is still to come and
	// will wake the worker. Nil: a later step makes it with what it puts there.
	do func(context.Context) (ready bool, err error)
	// release gives back what a pod that has completed needs no more. Nil: it
	// stays, for who asks for logs and messages.
	release func(context.Context) error
	// remove takes away what is left, once nothing of the pod runs. Nil: it goes
	// with an earlier step.
	remove func(context.Context) error
}

// make does the steps up to the first that fails or is still to come.
func (s setup) make(ctx context.Context) (ready bool, err error) {
	for _, step := range s {
		if step.do == nil {
			continue
		}
		if ready, err := step.do(ctx); err != nil || !ready {
			return false, err
		}
	}
	return true, nil
}

// release tries every step: none rests on the one before it.
func (s setup) release(ctx context.Context) error {
	var errs []error
	for _, step := range slices.Backward(s) {
		if step.release != nil {
			errs = append(errs, step.release(ctx))
		}
	}
	return errors.Join(errs...)
}

// remove ends with the first error: what would go next may be in use, or is what
// the pod is found by again.
func (s setup) remove(ctx context.Context) error {
	for _, step := range slices.Backward(s) {
		if step.remove == nil {
			continue
		}
		if err := step.remove(ctx); err != nil {
			return err
		}
	}
	return nil
}

// setup is the pod's. This is the one place that says in which order a pod comes
// and goes.
func (w *worker) setup(v *view) setup {
	var req pod.SandboxRequest
	return setup{
		// What a podd that is killed on the way finds the pod by goes last.
		{name: "checkpoints", remove: func(context.Context) error { return w.dropCheckpoints(v) }},
		{name: "records", remove: func(ctx context.Context) error { return w.remove(ctx, &v.step) }},
		{name: "logs", remove: func(context.Context) error { w.leaveLogs(v); return nil }},
		// The directory comes with the volumes, and goes, with the mounts in it, when no
		// process is in the cgroup any more.
		{name: "directory", remove: func(ctx context.Context) error { w.removeDirectory(ctx, v); return nil }},
		{
			name: "cgroup", do: func(ctx context.Context) (bool, error) { return done(w.ensureCgroup(ctx, v)) },
			release: func(ctx context.Context) error { w.releaseCgroup(ctx, v); return nil },
			remove:  func(ctx context.Context) error { return w.removeCgroup(ctx, v) },
		},
		{
			name: "volumes", do: func(ctx context.Context) (bool, error) { return w.ensureVolumes(ctx, v) },
			release: func(ctx context.Context) error { w.releaseVolumes(ctx, v); return nil },
		},
		{name: "place", do: func(ctx context.Context) (bool, error) { return done(w.takePlace(ctx)) }},
		// The user namespace is noted in the directory, and goes with it.
		{name: "inputs and user namespace", do: func(ctx context.Context) (bool, error) {
			return done(w.tellSandbox(ctx, v, w.prepareSandbox(ctx, v, &req)))
		}},
		// Removed is what is left of a sandbox that a step of its own has stopped.
		{
			name: "sandbox", do: func(ctx context.Context) (bool, error) { return done(w.tellSandbox(ctx, v, w.runSandbox(ctx, req))) },
			release: func(ctx context.Context) error { return w.releaseSandboxes(ctx, v) },
		},
	}
}

// done is the outcome of a step that makes its thing at once, or fails.
func done(err error) (ready bool, same error) { return err == nil, err }

func (w *worker) ensureCgroup(ctx context.Context, v *view) error {
	err := w.agent.cfg.Cgroups.EnsureCgroup(ctx, v.granted.Pod)
	if err != nil && ctx.Err() == nil {
		w.event(v.granted, "", "FailedCreatePodContainer", "unable to ensure pod container exists: "+err.Error())
		return toldError{err}
	}
	return err
}

// ensureVolumes makes what a sandbox or a container needs on disk, once in this
// worker's life: the mounter recognises what an earlier podd left. Where that
// takes long, it is not ready, and the next sync, which its end wakes, asks again.
func (w *worker) ensureVolumes(ctx context.Context, v *view) (ready bool, err error) {
	if w.mounted {
		return true, nil
	}
	state, err := w.agent.cfg.Volumes.Ensure(ctx, v.granted.Pod)
	w.mounted, w.unmounted = state.Ready && err == nil, state.Message
	if err != nil {
		if ctx.Err() != nil {
			return false, err
		}
		w.event(v.granted, "", pod.ReasonOf(err, "FailedMount"), err.Error())
		return false, toldError{err}
	}
	if !w.mounted {
		v.wakeBy(state.RetryAt)
	}
	return w.mounted, nil
}

// takePlace waits for a place among the sandboxes being started; leavePlace gives
// it back.
func (w *worker) takePlace(ctx context.Context) error {
	leave, err := w.agent.place(ctx)
	if err == nil {
		w.leave = leave
	}
	return err
}

func (w *worker) leavePlace() {
	if w.leave != nil {
		w.leave()
		w.leave = nil
	}
}

// prepareSandbox computes what the sandbox rests on, which its containers will
// share: the user namespace is among it.
func (w *worker) prepareSandbox(ctx context.Context, v *view, req *pod.SandboxRequest) error {
	cfg, d := &w.agent.cfg, v.granted
	w.created = true
	call, cancel := lasting(ctx)
	defer cancel()
	handler, err := cfg.Sandboxes.Handler(call, d.Pod)
	if err != nil {
		return err
	}
	in, err := cfg.Inputs.Sandbox(d.Pod)
	if err != nil {
		return pod.WithReason("ConfigPodSandboxError", err)
	}
	w.sandbox = &in
	if err := cfg.Files.PreparePod(d.Pod); err != nil {
		return pod.WithReason("ConfigPodSandboxError", err)
	}
	for _, warning := range in.Warnings {
		cfg.Events.Event(d.Pod, v1.EventTypeWarning, warning.Reason, warning.Message)
	}
	*req = pod.SandboxRequest{
		Pod: d.Pod, Source: d.Source, Attempt: v.step.Attempt, StartTime: w.startTime, Handler: handler, Inputs: in,
	}
	return nil
}

func (w *worker) runSandbox(ctx context.Context, req pod.SandboxRequest) error {
	call, cancel := lasting(ctx)
	defer cancel()
	_, err := w.agent.cfg.Sandboxes.RunSandbox(call, req)
	return err
}

// tellSandbox tells of a sandbox that could not be made, and remembers whose
// name is taken.
func (w *worker) tellSandbox(ctx context.Context, v *view, err error) error {
	switch {
	case errors.Is(err, pod.ErrNameLost):
		w.memory = w.memory.NameLost("", int64(v.step.Attempt))
	case errors.Is(err, pod.ErrNameReserved):
		w.memory = w.memory.NameTaken("", int64(v.step.Attempt), time.Now())
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	reason := "FailedCreatePodSandBox"
	if errors.Is(err, pod.ErrNetworkNotReady) {
		reason = "NetworkNotReady"
	}
	w.event(v.granted, "", reason, "Failed to create pod sandbox: "+err.Error())
	return toldError{fmt.Errorf("create pod sandbox: %w", err)}
}

// releaseSandboxes gives the network back, which a sandbox that died by itself
// holds until it is stopped. It is others' too: an error asks for another try.
func (w *worker) releaseSandboxes(ctx context.Context, v *view) error {
	err := each(v.seen.Sandboxes, func(sb pod.Sandbox) error {
		return ignoreNotFound(w.agent.cfg.Sandboxes.StopSandbox(ctx, sb.ID))
	})
	if err != nil {
		return fmt.Errorf("release the network of a dead sandbox: %w", err)
	}
	return nil
}

// releaseVolumes keeps what is on disk, as long as the pod is there, but for one
// that was evicted: the node is to get the space back.
func (w *worker) releaseVolumes(ctx context.Context, v *view) {
	w.mounted = false
	release := w.agent.cfg.Volumes.Release
	if end := v.step.End; end != nil && end.Reason == pod.ReasonEvicted {
		release = w.agent.cfg.Volumes.Discard
	}
	if err := release(ctx, w.uid); err != nil && ctx.Err() == nil {
		w.log.Warn("cannot unmount volumes of a completed pod: they stay mounted until it is removed", "error", err)
	}
}

// releaseCgroup gives the pod's share of its class' weight back.
func (w *worker) releaseCgroup(ctx context.Context, v *view) {
	if err := w.agent.cfg.Cgroups.RemoveCgroup(ctx, v.granted.Pod); err != nil && ctx.Err() == nil {
		w.log.Warn("cannot remove the cgroup of a completed pod: it stays until the pod is removed", "error", err)
	}
}

// removeCgroup fails while a process is in the cgroup: its files may be in use.
func (w *worker) removeCgroup(ctx context.Context, v *view) error {
	if err := w.agent.cfg.Cgroups.RemoveCgroup(ctx, v.granted.Pod); err != nil {
		return fmt.Errorf("remove the pod's cgroup: %w", err)
	}
	return nil
}

// removeDirectory unmounts what is in the pod's directory and deletes it. A mount
// that does not go is a pending unmount, which the mounter retries and shows: it
// does not keep the pod's name taken for ever (kubernetes/kubernetes#51835).
func (w *worker) removeDirectory(ctx context.Context, v *view) {
	if err := w.agent.cfg.Volumes.TearDown(ctx, w.uid); err != nil {
		w.event(v.granted, "", "FailedUnMount", err.Error())
	}
}

// leaveLogs notes, for a podd after this one, that the logs are to be removed
// when their time has come.
func (w *worker) leaveLogs(v *view) {
	if v.granted.Pod.Name == "" {
		return
	}
	if err := w.agent.logRemovals.files.write(logRemovalOf(v.granted.Pod, time.Now().Add(w.agent.cfg.LogRetention))); err != nil {
		w.log.Warn("cannot save that the pod's logs are to be removed: a restart of podd forgets it", "error", err)
	}
}

// dropCheckpoints forgets the pod. It comes last of all: without them, what a
// podd that is killed before has left in the runtime would look like a pod that is
// to run on.
func (w *worker) dropCheckpoints(v *view) error {
	if err := w.agent.ends.drop(w.uid); err != nil {
		return fmt.Errorf("forget that the pod had ended: %w", err)
	}
	if err := w.agent.allocated.drop(w.uid); err != nil {
		return fmt.Errorf("forget what the node had granted the pod: %w", err)
	}
	if v.granted.Pod.Name != "" {
		w.agent.logRemovals.add(logRemovalOf(v.granted.Pod, time.Now().Add(w.agent.cfg.LogRetention)))
	}
	w.log.Info("pod removed")
	return nil
}
