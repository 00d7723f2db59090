package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/internal/slots"
)

// setup is everything that a pod has on the node besides its containers, in the order
// of creation. It is undone in reverse: released when the pod has completed and is
// still desired, removed with the pod. Each step may be repeated after any outcome,
// and undone whether or not it was done, by this podd or an earlier one.
type setup []setupStep

// setupStep is one thing that a pod has on the node.
type setupStep struct {
	name string
	// create creates it; ready is false, without an error, if it is still in progress and
	// will wake the worker. Nil: a later step creates it.
	create func(context.Context) (ready bool, err error)
	// release releases what a completed pod no longer needs. Nil: it stays, for
	// reading logs and messages.
	release func(context.Context) error
	// remove removes the rest, once no part of the pod runs. Nil: an earlier step has
	// removed it.
	remove func(context.Context) error
}

// create performs the steps up to the first that fails or is not ready.
func (s setup) create(ctx context.Context) (ready bool, err error) {
	for _, step := range s {
		if step.create == nil {
			continue
		}
		if ready, err := step.create(ctx); err != nil || !ready {
			return false, err
		}
	}
	return true, nil
}

// release tries every step: none depends on the previous one.
func (s setup) release(ctx context.Context) error {
	var errs []error
	for _, step := range slices.Backward(s) {
		if step.release != nil {
			errs = append(errs, step.release(ctx))
		}
	}
	return errors.Join(errs...)
}

// remove stops at the first error: the later steps remove what may still be in use, or
// what podd finds the pod by after a restart.
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

// setup returns the pod's steps: the one place that defines in which order a pod is
// set up and torn down.
func (w *worker) setup(v *view) setup {
	var req pod.SandboxRequest
	return setup{
		// Removed last: podd finds the pod by these after a crash.
		{name: "checkpoints", remove: func(context.Context) error { return w.dropCheckpoints(v) }},
		{name: "records", remove: func(ctx context.Context) error { return w.removeDead(ctx, &v.step) }},
		{name: "logs", remove: func(context.Context) error { w.scheduleLogRemoval(v); return nil }},
		// The directory is created with the volumes, and removed, with the mounts in
		// it, when no process is left in the cgroup.
		{name: "directory", remove: func(ctx context.Context) error { w.removeDirectory(ctx, v); return nil }},
		// Admission allocates them, before there is a worker. They are free once no process
		// is left in the cgroup.
		{
			name: "devices", release: func(context.Context) error { w.agent.cfg.Devices.Release(w.uid); return nil },
			remove: func(context.Context) error { w.agent.cfg.Devices.Release(w.uid); return nil },
		},
		{
			name: "cgroup", create: func(ctx context.Context) (bool, error) { return done(w.ensureCgroup(ctx, v)) },
			release: func(ctx context.Context) error { w.releaseCgroup(ctx, v); return nil },
			remove:  func(ctx context.Context) error { return w.removeCgroup(ctx, v) },
		},
		{
			name: "volumes", create: func(ctx context.Context) (bool, error) { return w.ensureVolumes(ctx, v) },
			release: func(ctx context.Context) error { w.releaseVolumes(ctx, v); return nil },
		},
		// Usually unprepared before the pod's end is reported. A pod that has no status to
		// report, or no new one, leaves it to this step.
		{
			name: "claims", create: func(ctx context.Context) (bool, error) { return done(w.prepareClaims(ctx, v)) },
			remove: func(ctx context.Context) error { return w.agent.cfg.ResourceClaims.Unprepare(ctx, w.uid) },
		},
		{name: "place", create: func(ctx context.Context) (bool, error) { return done(w.acquireStartSlot(ctx)) }},
		// The user namespace is recorded in the directory, and removed with it.
		{name: "inputs and user namespace", create: func(ctx context.Context) (bool, error) {
			return done(w.recordSandboxFailure(ctx, v, w.prepareSandbox(ctx, v, &req)))
		}},
		// A separate step has stopped the sandbox.
		{
			name: "sandbox", create: func(ctx context.Context) (bool, error) {
				return done(w.recordSandboxFailure(ctx, v, w.runSandbox(ctx, req)))
			},
			release: func(ctx context.Context) error { return w.releaseSandboxes(ctx, v) },
		},
	}
}

// done is the outcome of a step that succeeds or fails at once.
func done(err error) (ready bool, same error) { return err == nil, err }

func (w *worker) ensureCgroup(ctx context.Context, v *view) error {
	err := w.agent.cfg.Cgroups.EnsureCgroup(ctx, v.granted.Pod)
	if err != nil && ctx.Err() == nil {
		w.recordWarning(v.granted, "", "FailedCreatePodContainer", "unable to ensure pod container exists: "+err.Error())
		return recordedError{err}
	}
	return err
}

// ensureVolumes sets up what a sandbox or a container needs on disk, once in this
// worker's life. It does so again for an ephemeral container that mounts a volume that no
// other container does. The mounter recognises the mounts of an earlier podd. If the
// set-up takes long, ready is false, and the worker is woken when it is done.
func (w *worker) ensureVolumes(ctx context.Context, v *view) (ready bool, err error) {
	used := pod.UsedVolumes(v.granted.Pod)
	if w.starting.mounted != nil && !anyMissing(used, w.starting.mounted) {
		return true, nil
	}
	state, err := w.agent.cfg.Volumes.Ensure(ctx, v.granted.Pod)
	w.starting.mounted, w.starting.volumesWait = nil, state.Message
	if state.Ready && err == nil {
		w.starting.mounted = used
	}
	awaits := w.awaitsAPIServer(v, err)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, err
	case awaits:
		w.starting.volumesWait = err.Error()
		return false, nil
	case errors.Is(err, pod.ErrAttachLimit):
		if decided, _ := w.applyEnd(attachLimitEnd(err)); decided {
			w.agent.cfg.Admitter.CountRejection(pod.ReasonAttachLimit)
		}
		return false, nil
	case err != nil:
		w.recordWarning(v.granted, "", pod.ReasonOf(err, "FailedMount"), err.Error())
		return false, recordedError{err}
	}
	if w.starting.mounted == nil {
		v.wakeBy(state.RetryAt)
	}
	return w.starting.mounted != nil, nil
}

// anyMissing says whether some of the names are not among the known.
func anyMissing(names, known map[string]bool) bool {
	for name := range names {
		if !known[name] {
			return true
		}
	}
	return false
}

// followVolumes tells volumes the newest version of a running pod, including a pod with
// volumes that an earlier podd has set up.
func (w *worker) followVolumes(v *view) {
	if v.step.Phase == pod.PhaseRunning && !v.step.CreateSandbox && len(v.seen.Sandboxes) > 0 && !v.step.Finished && !w.released {
		w.agent.cfg.Volumes.Follow(v.granted.Pod)
	}
}

// acquireStartSlot waits for a slot among the sandboxes being started; releaseStartSlot
// frees it.
func (w *worker) acquireStartSlot(ctx context.Context) error {
	release, err := w.agent.startSlots.Acquire(ctx, slots.Rest{})
	if err == nil {
		w.starting.releaseSlot = release
	}
	return err
}

func (w *worker) releaseStartSlot() {
	if w.starting.releaseSlot != nil {
		w.starting.releaseSlot()
		w.starting.releaseSlot = nil
	}
}

// prepareSandbox computes the inputs of the sandbox, which its containers share: the
// user namespace is one of them.
func (w *worker) prepareSandbox(ctx context.Context, v *view, req *pod.SandboxRequest) error {
	cfg, d := &w.agent.cfg, v.granted
	w.starting.sandboxCreated = true
	w.startsSandbox(d.Pod)
	call, cancel := withSlack(ctx)
	defer cancel()
	handler, err := cfg.Sandboxes.Handler(call, d.Pod)
	if err != nil {
		return err
	}
	in, err := cfg.Inputs.Sandbox(d.Pod)
	if err != nil {
		return pod.WithReason(pod.ReasonConfigPodSandboxError, err)
	}
	w.starting.sandbox = &in
	if err := cfg.Files.PreparePod(d.Pod, in); err != nil {
		return pod.WithReason(pod.ReasonConfigPodSandboxError, err)
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
	call, cancel := withSlack(ctx)
	defer cancel()
	_, err := w.agent.cfg.Sandboxes.RunSandbox(call, req)
	return err
}

// recordSandboxFailure reports a sandbox that could not be created, and remembers the
// attempt if its name is still reserved.
func (w *worker) recordSandboxFailure(ctx context.Context, v *view, err error) error {
	switch {
	case errors.Is(err, pod.ErrNameLost):
		w.memory = w.memory.NameLost("", int64(v.step.Attempt))
	case errors.Is(err, pod.ErrNameReserved):
		w.memory = w.memory.NameTaken("", int64(v.step.Attempt), time.Now())
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	w.sandboxFailed()
	reason := "FailedCreatePodSandBox"
	if errors.Is(err, pod.ErrNetworkNotReady) {
		reason = "NetworkNotReady"
	}
	w.recordWarning(v.granted, "", reason, "Failed to create pod sandbox: "+err.Error())
	return recordedError{fmt.Errorf("create pod sandbox: %w", err)}
}

// releaseSandboxes releases the network, which an exited sandbox keeps until it is
// stopped. An error is retried, because pods share the node's addresses.
func (w *worker) releaseSandboxes(ctx context.Context, v *view) error {
	err := each(v.seen.Sandboxes, func(sb pod.Sandbox) error {
		return ignoreNotFound(w.agent.cfg.Sandboxes.StopSandbox(ctx, sb.ID))
	})
	if err != nil {
		return fmt.Errorf("release the network of a dead sandbox: %w", err)
	}
	return nil
}

// releaseVolumes keeps the data on disk as long as the pod exists. An evicted pod loses
// its emptyDirs, because the eviction has to free the node's disk.
func (w *worker) releaseVolumes(ctx context.Context, v *view) {
	w.starting.mounted = nil
	release := w.agent.cfg.Volumes.Release
	if end := v.step.End; end != nil && end.Reason == pod.ReasonEvicted {
		release = w.agent.cfg.Volumes.Discard
	}
	if err := release(ctx, w.uid); err != nil && ctx.Err() == nil {
		w.log.Warn("cannot unmount volumes of a completed pod: they stay mounted until it is removed", "error", err)
	}
}

// releaseCgroup releases the pod's share of the weight of its QoS class.
func (w *worker) releaseCgroup(ctx context.Context, v *view) {
	if err := w.agent.cfg.Cgroups.RemoveCgroup(ctx, v.granted.Pod); err != nil && ctx.Err() == nil {
		w.log.Warn("cannot remove the cgroup of a completed pod: it stays until the pod is removed", "error", err)
	}
}

// removeCgroup fails while a process is in the cgroup, because the process may use the
// pod's files. It may belong to a sandbox that the runtime reports as not ready: the
// start was canceled, and the runtime could not kill what it had started by then
// (SANDBOX_UNKNOWN of containerd). Stopping that sandbox kills the process, or succeeds
// without doing so. Then podd kills it, as the kubelet does for all of a pod's cgroup.
func (w *worker) removeCgroup(ctx context.Context, v *view) error {
	remove := func() error { return w.agent.cfg.Cgroups.RemoveCgroup(ctx, v.granted.Pod) }
	err := remove()
	if err != nil && len(v.seen.Sandboxes) > 0 {
		if err = w.releaseSandboxes(ctx, v); err == nil {
			err = remove()
		}
		if err != nil && ctx.Err() == nil {
			err = errors.Join(err, w.agent.cfg.Cgroups.KillLeftover(w.uid, exitedIDs(&v.seen)))
		}
	}
	if err != nil {
		return fmt.Errorf("remove the pod's cgroup: %w", err)
	}
	return nil
}

// exitedIDs are the IDs of the sandboxes and containers that do not run, according to the
// runtime.
func exitedIDs(seen *pod.Observed) (ids []string) {
	for i := range seen.Sandboxes {
		if !seen.Sandboxes[i].Ready {
			ids = append(ids, seen.Sandboxes[i].ID)
		}
	}
	for i := range seen.Containers {
		if seen.Containers[i].State == pod.ContainerExited {
			ids = append(ids, seen.Containers[i].ID)
		}
	}
	return ids
}

// removeDirectory unmounts what is in the pod's directory and deletes it. A busy mount
// becomes a pending unmount, which the mounter retries and shows; it does not block the
// pod's name (kubernetes/kubernetes#51835).
func (w *worker) removeDirectory(ctx context.Context, v *view) {
	if err := w.agent.cfg.Volumes.TearDown(ctx, w.uid); err != nil {
		w.recordWarning(v.granted, "", "FailedUnMount", err.Error())
	}
}

// scheduleLogRemoval checkpoints that the logs are due for removal later.
func (w *worker) scheduleLogRemoval(v *view) {
	p := v.granted.Pod
	if p.Name == "" { // what an earlier podd left on disk
		namespace, name, ok, err := w.agent.cfg.Logs.OrphanedLogs(w.uid)
		if err != nil {
			w.log.Warn("cannot find the logs of a pod that an earlier podd left: they may stay", "error", err)
		}
		if !ok {
			return
		}
		p = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: w.uid}}
	}
	w.stored.logsOf = p
	if err := w.agent.logRemovals.files.write(logRemovalOf(p, time.Now().Add(w.agent.cfg.LogRetention))); err != nil {
		w.log.Warn("cannot save that the pod's logs are due for removal: a restart of podd forgets it", "error", err)
	}
}

// dropCheckpoints removes the pod's checkpoints. It comes last: if podd crashed before,
// anything left in the runtime would look, without them, like a pod that should run.
func (w *worker) dropCheckpoints(v *view) error {
	if err := w.agent.completions.drop(w.uid); err != nil {
		return fmt.Errorf("remove the checkpoint of the terminated pod: %w", err)
	}
	if err := w.agent.allocated.drop(w.uid); err != nil {
		return fmt.Errorf("remove the checkpoint of the pod's allocated resources: %w", err)
	}
	if err := w.agent.accepted.Remove(w.uid); err != nil {
		return fmt.Errorf("remove the saved spec of the pod: %w", err)
	}
	if err := w.agent.pendingStarts.drop(w.uid); err != nil {
		return fmt.Errorf("remove the checkpoint of the pod's starts: %w", err)
	}
	if err := w.agent.interruptions.drop(w.uid); err != nil {
		return fmt.Errorf("remove the checkpoint of the pod's interruption: %w", err)
	}
	if w.stored.logsOf != nil && !w.returnsAfterShutdown() {
		w.agent.logRemovals.add(logRemovalOf(w.stored.logsOf, time.Now().Add(w.agent.cfg.LogRetention)))
	}
	w.log.Info("pod removed")
	return nil
}
