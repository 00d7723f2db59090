package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/allocation"
	"podd/agent/plan"
	"podd/internal/pod"
)

// Resizer decides about and carries out the resize of a running pod.
type Resizer interface {
	// AdmitResize says whether a pod may have desired's resources instead of
	// allocated's. Reason is v1.PodReasonInfeasible or v1.PodReasonDeferred.
	AdmitResize(desired, allocated *v1.Pod, others []*v1.Pod) pod.Verdict
	// RaiseCgroup sets the pod's limits to the greater of the current ones and p's;
	// SetCgroup sets them to p's. Both first announce the change to the runtime, for the
	// pod's current sandbox. The runtime may reject it.
	RaiseCgroup(ctx context.Context, sandboxID string, p *v1.Pod) error
	SetCgroup(ctx context.Context, sandboxID string, p *v1.Pod) error
	// MemoryLimit returns the current limit of the pod's cgroup and that of p, in
	// bytes; 0 for none.
	MemoryLimit(p *v1.Pod) (now, next int64)
	// MemoryUsage is in bytes, of one container or, with no ID, of the pod.
	MemoryUsage(p *v1.Pod, containerID string) (int64, error)
}

func newAllocated(dir string) *checkpoints[allocation.Checkpoint] {
	return newCheckpoints(newCheckpointFiles(dir, "a pod's allocated resources", func(c *allocation.Checkpoint) pod.UID { return c.UID }, (*allocation.Checkpoint).Check))
}

// restored is the checkpointed allocation of a pod; without one, the zero Allocation.
func (a *Agent) restored(d *pod.Desired) allocation.Allocation {
	if c, known := a.allocated.get(d.UID()); known && allocation.NeedsCheckpoint(d) {
		return c.Restore(d)
	}
	return allocation.Allocation{}
}

// lastGranted is d with its allocated resources, if it has some.
func (a *Agent) lastGranted(d *pod.Desired) *pod.Desired {
	if granted := a.restored(d).Granted; granted != nil {
		return granted
	}
	return d
}

// allocate returns the pod as it runs now: as desired, but with its allocated resources.
func (w *worker) allocate(in mail, now time.Time) (granted *pod.Desired) {
	trigger := in.resourcesFreed
	switch before := w.allocation.Desired; {
	case before != nil && before != in.desired:
		w.agent.metrics.resizes.updated(before.Pod, in.desired.Pod)
		trigger = triggerPodUpdated
	case trigger == "":
		trigger = triggerPeriodic
	}
	next, ask := w.allocation.Propose(allocation.Proposal{
		Desired: in.desired, ResourcesFreed: in.resourcesFreed != "", UsageUnknown: !w.agent.knowsAllPods(), Now: now,
		Terminating: in.Kill != nil || in.End != nil || w.phase > pod.PhaseRunning,
	})
	if ask {
		w.admitResize(next, trigger, now)
	} else {
		w.setAllocation(next, resizeReverted)
	}
	return w.allocation.Granted
}

// setAllocation sets the pod's allocation: for other decisions of the node, in metrics, and in
// the checkpoint. resolution says how the wait of a deferred resize ends, if it does.
func (w *worker) setAllocation(next allocation.Allocation, resolution string) {
	w.agent.metrics.resizes.allocated(w.allocation, next, resolution, time.Now())
	w.mu.Lock()
	w.allocation, w.deferred = next, next.Deferred()
	w.mu.Unlock()
	if w.stored.allocation == next.Granted || !allocation.NeedsCheckpoint(next.Granted) {
		return
	}
	w.stored.allocation = next.Granted
	if before, known := w.agent.allocated.get(w.uid); known && before.Resources.Match(next.Granted.Pod) {
		return
	}
	if err := w.agent.allocated.save(allocation.CheckpointOf(next.Granted)); err != nil {
		w.log.Warn("cannot save this pod's allocated resources: a restart of podd forgets them", "error", err)
	}
}

// admitResize asks the node whether the pod may have the desired resources. trigger is the
// reason for asking now. Concurrent decisions, about a new pod or another resize, wait: each
// must see the allocations of the previous ones.
func (w *worker) admitResize(a allocation.Allocation, trigger string, now time.Time) {
	var v pod.Verdict
	if w.agent.cfg.Resizer != nil {
		w.agent.admissionMu.Lock()
		defer w.agent.admissionMu.Unlock()
		v = w.agent.cfg.Resizer.AdmitResize(a.Desired.Pod, a.Granted.Pod, w.agent.countedPods(w.uid))
		w.agent.preempt(v)
	}
	before := w.allocation
	w.setAllocation(a.ApplyVerdict(v, now), resizeAccepted)
	d := a.Desired
	switch p := w.allocation.Pending; {
	case v.Admitted():
		if before.Pending != nil && before.Pending.Reason == v1.PodReasonDeferred {
			w.agent.metrics.resizes.deferredAccepted.WithLabelValues(trigger).Inc()
		}
		w.memory = w.memory.ResizeBackOffReset()
		w.agent.cfg.Events.Event(d.Pod, v1.EventTypeNormal, "ResizeStarted", resizeMessage("Pod resize started", d, ""))
		w.log.Info("resizing pod")
		w.agent.notifyFreed(triggerPodResized)
	case w.allocation.PendingChanged(before):
		w.agent.cfg.Events.Event(d.Pod, v1.EventTypeWarning, "Resize"+p.Reason, resizeMessage("Pod resize "+p.Reason, d, p.Message))
		w.log.Info("pod resize pending", "reason", p.Reason, "message", p.Message)
	}
}

// settleResize completes a resize with nothing left to do.
func (w *worker) settleResize(v *view) {
	next, completed := w.allocation, false
	switch {
	case v.step.Finished || w.phase > pod.PhaseRunning:
		next = next.ResizeCanceled()
	case !v.step.Resizing():
		next, completed = next.ResizeCompleted()
	}
	w.setAllocation(next, resizeTerminated)
	if completed {
		w.agent.cfg.Events.Event(v.granted.Pod, v1.EventTypeNormal, "ResizeCompleted", resizeMessage("Pod resize completed", v.granted, ""))
	}
}

// resize carries out a step's resizes: the pod's limits are raised first, then its
// containers change, and then the pod's limits are lowered. A resize that the node or
// the runtime refuses is reported and retried; it blocks nothing else.
func (w *worker) resize(ctx context.Context, v *view) (did bool, err error) {
	p, began := v.granted.Pod, time.Now()
	err = w.mayShrink(p, &v.step)
	if err == nil {
		err = w.doResize(ctx, p, &v.step)
	}
	w.agent.metrics.resizes.carriedOut(err == nil, began)
	if err == nil || ctx.Err() != nil || errors.Is(err, pod.ErrUnavailable) {
		return err == nil, err
	}
	now := time.Now()
	w.memory = w.memory.ResizeFailed(now)
	v.wakeBy(w.memory.ResizeAt)
	next, changed := w.allocation.ResizeFailed(err, now)
	w.setAllocation(next, resizeTerminated)
	if changed {
		w.agent.cfg.Events.Event(p, v1.EventTypeWarning, "ResizeError", resizeMessage("Pod resize error", v.granted, err.Error()))
		w.log.Warn("pod resize failed", "error", err, "retry_in", w.memory.ResizeAt.Sub(now))
	}
	return false, nil
}

// resizeBeforeStarts carries out a step's resizes before its containers start, as upstream
// does. By the time a container starts with more, the pod's limits are high enough, and the
// containers that get less have given up their part.
//
// A resize that fails, or waits for its back-off, does not keep containers from starting. For
// them the pod's limits are only raised. Otherwise the kernel would kill processes for memory
// that the pod lacks, and cgroup v1 would reject a CPU quota above the pod's.
func (w *worker) resizeBeforeStarts(ctx context.Context, v *view) (did bool, err error) {
	step := &v.step
	if len(step.Resize) > 0 {
		if did, err = w.resize(ctx, v); did || err != nil {
			return did, err
		}
	}
	if r := w.agent.cfg.Resizer; r != nil && len(step.Start) > 0 && (len(step.Resize) > 0 || step.ResizeHeld) {
		if err := r.RaiseCgroup(ctx, step.Sandbox.ID, v.granted.Pod); err != nil && ctx.Err() == nil {
			w.log.Debug("cannot raise the pod's limits before its containers start", "error", err)
		}
	}
	return false, nil
}

func (w *worker) doResize(ctx context.Context, p *v1.Pod, step *plan.Step) error {
	r := w.agent.cfg.Resizer
	if r != nil {
		if err := r.RaiseCgroup(ctx, step.Sandbox.ID, p); err != nil {
			return fmt.Errorf("raise the pod's limits: %w", err)
		}
	}
	for _, each := range step.Resize {
		if each.Container == nil {
			continue
		}
		if err := ignoreNotFound(w.agent.cfg.Containers.UpdateContainer(ctx, each.ID, p, each.Container)); err != nil {
			return fmt.Errorf("resize container %s: %w", each.Container.Name, err)
		}
		w.memory = w.memory.Resized(each.ID, p, each.Container)
		w.log.Info("container resized", "container", each.Container.Name)
	}
	if r != nil {
		if err := r.SetCgroup(ctx, step.Sandbox.ID, p); err != nil {
			return fmt.Errorf("hold the pod to its limits: %w", err)
		}
	}
	w.memory = w.memory.Resized("", p, nil)
	return nil
}

// mayShrink checks whether a lower limit would be below the memory in use.
func (w *worker) mayShrink(p *v1.Pod, step *plan.Step) error {
	r := w.agent.cfg.Resizer
	if r == nil {
		return nil
	}
	return plan.MayShrink(step.Shrinks(r.MemoryLimit(p)), func(id string) (int64, error) { return r.MemoryUsage(p, id) })
}

// reportResize adds the state of a resize to the report.
func (w *worker) reportResize(r *pod.Report) {
	a := &w.allocation
	for _, c := range []*v1.PodCondition{a.Pending, a.Progress} {
		if c != nil {
			r.Conditions = append(r.Conditions, *c)
		}
	}
	if a.ResizePending() {
		granted := allocation.ResourcesOf(a.Granted.Pod)
		r.Desired, r.Allocated, r.AllocatedPod = a.Desired, granted.Containers, granted.Pod
	}
	if a.Progress != nil {
		r.ActuatedPod = w.memory.ActuatedPod()
	}
}

// adoptCgroup updates the cgroup of a pod that an earlier podd started, and the
// weights of the QoS classes above it. If the pod uses more memory than it was granted, its cgroup
// keeps the limit that it has, and a resize lowers it later.
func (w *worker) adoptCgroup(ctx context.Context, v *view) {
	if w.stored.cgroupAdopted || w.starting.sandboxCreated || v.step.Phase != pod.PhaseRunning || v.step.CreateSandbox || len(v.seen.Sandboxes) == 0 || v.step.Finished {
		return
	}
	w.stored.cgroupAdopted = true
	if err := w.agent.cfg.Cgroups.EnsureCgroup(ctx, v.granted.Pod); err != nil && ctx.Err() == nil {
		w.log.Warn("cannot update the cgroup of a running pod: it may have other limits", "error", err)
		return
	}
	if r := w.agent.cfg.Resizer; r != nil {
		if now, next := r.MemoryLimit(v.granted.Pod); next > 0 && now != next {
			w.memory = w.memory.PodLimited(now)
			v.wakeBy(time.Now())
		}
	}
}

// resizeMessage is an event's message: text and, as upstream writes them, the desired
// resources.
func resizeMessage(words string, d *pod.Desired, wrong string) string {
	type entry struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources,omitempty"`
	}
	summary := struct {
		InitContainers []entry `json:"initContainers,omitempty"`
		Containers     []entry `json:"containers,omitempty"`
		Generation     int64   `json:"generation"`
		Error          string  `json:"error,omitempty"`
	}{Generation: d.Pod.Generation, Error: wrong}
	for _, c := range d.Pod.Spec.InitContainers {
		summary.InitContainers = append(summary.InitContainers, entry{c.Name, c.Resources})
	}
	for _, c := range d.Pod.Spec.Containers {
		summary.Containers = append(summary.Containers, entry{c.Name, c.Resources})
	}
	text, err := json.Marshal(summary)
	if err != nil {
		return words
	}
	return words + ": " + string(text)
}

// knowsAllPods says that podd knows all pods that use resources of the node. Before that, it
// cannot decide whether a resize fits. Any goroutine may call it.
func (a *Agent) knowsAllPods() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.allKnown
}

// markAllKnown retries resizes that were requested before podd knew all pods.
func (a *Agent) markAllKnown() {
	if a.knowsAllPods() || !a.allSourcesReady() {
		return
	}
	a.mu.Lock()
	a.allKnown = true
	a.mu.Unlock()
	a.wakeDeferred(triggerPodsAdded)
}

// wakeDeferred retries deferred resizes, which wait for room. trigger is the reason.
func (a *Agent) wakeDeferred(trigger string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		w.retryDeferred(trigger)
	}
}

func (w *worker) retryDeferred(trigger string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deferred {
		w.mail.resourcesFreed = trigger
		w.wakeLocked()
	}
}
