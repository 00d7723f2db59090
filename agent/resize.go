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

// Resizer is what the resize of a running pod asks of the node.
type Resizer interface {
	// AdmitResize says whether a pod may have desired's resources instead of
	// allocated's. Reason is v1.PodReasonInfeasible or v1.PodReasonDeferred.
	AdmitResize(desired, allocated *v1.Pod, others []*v1.Pod) pod.Verdict
	// RaiseCgroup lets the pod have the greater of what it has and what p says;
	// HoldCgroup holds it to p.
	RaiseCgroup(ctx context.Context, p *v1.Pod) error
	HoldCgroup(ctx context.Context, p *v1.Pod) error
	// MemoryLimit is what the pod's cgroup is held to and what p asks for, in
	// bytes; 0 for none.
	MemoryLimit(p *v1.Pod) (now, next int64)
	// MemoryUsage is in bytes, of one container or, with no ID, of the pod.
	MemoryUsage(p *v1.Pod, containerID string) (int64, error)
}

func newAllocated(dir string) *checkpoints[allocation.Checkpoint] {
	return newCheckpoints(checkpointFiles[allocation.Checkpoint]{
		dir: dir, uid: func(c allocation.Checkpoint) pod.UID { return c.UID }, says: "a pod's allocated resources",
		check: allocation.Checkpoint.Checked,
	})
}

// restored is what an earlier podd granted a pod; of one that it knew nothing of,
// the zero Allocation.
func (a *Agent) restored(d *pod.Desired) allocation.Allocation {
	if c, known := a.allocated.of(d.UID()); known && allocation.Kept(d) {
		return c.Restore(d)
	}
	return allocation.Allocation{}
}

// grantedBefore is d as it was granted before, if it was.
func (a *Agent) grantedBefore(d *pod.Desired) *pod.Desired {
	if granted := a.restored(d).Granted; granted != nil {
		return granted
	}
	return d
}

// allocate returns the pod as it is to be made now: what its source desires, with
// the resources that the node granted.
func (w *worker) allocate(in mail, now time.Time) (granted *pod.Desired) {
	next, ask := w.allocation.Propose(allocation.Proposal{
		Desired: in.desired, Room: in.room, Early: !w.agent.complete(), Now: now,
		Ending: in.Kill != nil || in.End != nil || w.phase > pod.PhaseRunning,
	})
	if ask {
		w.askTheNode(next, now)
	} else {
		w.grant(next)
	}
	return w.allocation.Granted
}

// grant makes an allocation the pod's: for the others who ask the node, and for
// the podd after this one.
func (w *worker) grant(next allocation.Allocation) {
	w.mu.Lock()
	w.allocation, w.deferred = next, next.WaitsForRoom()
	w.mu.Unlock()
	if w.checkpointed == next.Granted || !allocation.Kept(next.Granted) {
		return
	}
	w.checkpointed = next.Granted
	if before, known := w.agent.allocated.of(w.uid); known && before.Resources.Match(next.Granted.Pod) {
		return
	}
	if err := w.agent.allocated.keep(allocation.CheckpointOf(next.Granted)); err != nil {
		w.log.Warn("cannot save this pod's allocated resources: a restart of podd forgets them", "error", err)
	}
}

// askTheNode asks whether the pod may have what it desires. Who asks at the same
// time, a new pod or another resize, waits: each must see what the one before was
// granted.
func (w *worker) askTheNode(a allocation.Allocation, now time.Time) {
	var v pod.Verdict
	if w.agent.cfg.Resizer != nil {
		w.agent.granting.Lock()
		defer w.agent.granting.Unlock()
		v = w.agent.cfg.Resizer.AdmitResize(a.Desired.Pod, a.Granted.Pod, w.agent.others(w.uid))
		for _, victim := range v.Preempt {
			w.agent.End(victim, preempting())
		}
	}
	before := w.allocation
	w.grant(a.Answer(v, now))
	d := a.Desired
	switch p := w.allocation.Pending; {
	case v.Admitted():
		w.memory = w.memory.ResizeAnew()
		w.agent.cfg.Events.Event(d.Pod, v1.EventTypeNormal, "ResizeStarted", resizeMessage("Pod resize started", d, ""))
		w.log.Info("resizing pod")
		w.agent.makeRoom()
	case w.allocation.Tells(before):
		w.agent.cfg.Events.Event(d.Pod, v1.EventTypeWarning, "Resize"+p.Reason, resizeMessage("Pod resize "+p.Reason, d, p.Message))
		w.log.Info("pod resize pending", "reason", p.Reason, "message", p.Message)
	}
}

// settleResize ends a resize of which nothing is left to do.
func (w *worker) settleResize(v *view) {
	next, completed := w.allocation, false
	switch {
	case v.step.Finished || w.phase > pod.PhaseRunning:
		next = next.Over()
	case !v.step.Resizing():
		next, completed = next.Completed()
	}
	w.grant(next)
	if completed {
		w.agent.cfg.Events.Event(v.granted.Pod, v1.EventTypeNormal, "ResizeCompleted", resizeMessage("Pod resize completed", v.granted, ""))
	}
}

// resize carries out a step's resizes: the pod may have more first, then its
// containers change, and then the pod has no more than it should. One that the
// node or the runtime refuses is told, and tried again; it holds up nothing else.
func (w *worker) resize(ctx context.Context, v *view) (did bool, err error) {
	p := v.granted.Pod
	err = w.mayShrink(p, &v.step)
	if err == nil {
		err = w.doResize(ctx, p, &v.step)
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, pod.ErrUnavailable) {
		return err == nil, err
	}
	now := time.Now()
	w.memory = w.memory.ResizeFailed(now)
	v.wakeBy(w.memory.ResizeAt)
	next, news := w.allocation.Failed(err, now)
	w.grant(next)
	if news {
		w.agent.cfg.Events.Event(p, v1.EventTypeWarning, "ResizeError", resizeMessage("Pod resize error", v.granted, err.Error()))
		w.log.Warn("pod resize failed", "error", err, "retry_in", w.memory.ResizeAt.Sub(now))
	}
	return false, nil
}

func (w *worker) doResize(ctx context.Context, p *v1.Pod, step *plan.Step) error {
	r := w.agent.cfg.Resizer
	if r != nil {
		if err := r.RaiseCgroup(ctx, p); err != nil {
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
		if err := r.HoldCgroup(ctx, p); err != nil {
			return fmt.Errorf("hold the pod to its limits: %w", err)
		}
	}
	w.memory = w.memory.Resized("", p, nil)
	return nil
}

// mayShrink looks whether memory is in use that a lower limit would take away.
func (w *worker) mayShrink(p *v1.Pod, step *plan.Step) error {
	r := w.agent.cfg.Resizer
	if r == nil {
		return nil
	}
	return plan.MayShrink(step.Shrinks(r.MemoryLimit(p)), func(id string) (int64, error) { return r.MemoryUsage(p, id) })
}

// reportResize adds what a resize has to tell.
func (w *worker) reportResize(r *pod.Report) {
	a := &w.allocation
	for _, c := range []*v1.PodCondition{a.Pending, a.Progress} {
		if c != nil {
			r.Conditions = append(r.Conditions, *c)
		}
	}
	if a.Waits() {
		r.Desired, r.Allocated = a.Desired, allocation.Of(a.Granted.Pod).Containers
	}
}

// adoptCgroup gives a pod that an earlier podd started its cgroup's limits, and
// the classes above it their weights.
func (w *worker) adoptCgroup(ctx context.Context, v *view) {
	if w.adopted || w.created || v.step.Phase != pod.PhaseRunning || v.step.CreateSandbox || len(v.seen.Sandboxes) == 0 || v.step.Finished {
		return
	}
	w.adopted = true
	if err := w.agent.cfg.Cgroups.EnsureCgroup(ctx, v.granted.Pod); err != nil && ctx.Err() == nil {
		w.log.Warn("cannot update the cgroup of a running pod: it may have other limits", "error", err)
	}
}

// resizeMessage is an event's: words and, as upstream writes them, the resources
// that are asked for.
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

// complete says that all is known that has something of the node: before that,
// nobody can tell whether a resize fits. Any goroutine may call it.
func (a *Agent) complete() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settled
}

// completeOnce has resizes asked about that came early.
func (a *Agent) completeOnce() {
	if a.complete() || !a.allSpoken() {
		return
	}
	a.mu.Lock()
	a.settled = true
	a.mu.Unlock()
	a.wakeDeferred()
}

// wakeDeferred has resizes asked about again that wait for room.
func (a *Agent) wakeDeferred() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		w.roomMade()
	}
}

func (w *worker) roomMade() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deferred {
		w.mail.room = true
		w.wakeLocked()
	}
}
