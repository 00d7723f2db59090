package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// Waits of a resize that does not fit now (upstream's allocation manager), and
// of one that could not be carried out.
const (
	firstResizeRetry = 30 * time.Second
	resizeRetry      = 3 * time.Minute
	resizeErrorRetry = 10 * time.Second
)

// allocation is what the node granted a pod, while its source may want something
// else. It belongs to the worker's goroutine, but for granted, which is guarded
// by the worker's mutex.
type allocation struct {
	// wanted is what was asked about last; granted is that with the resources
	// that the pod has.
	wanted, granted *pod.Desired
	// pending and progress are the pod's conditions; nil for none.
	pending, progress *v1.PodCondition
	// retryAt is when a deferred resize is asked about again, failedUntil when
	// one that failed is tried again.
	retryAt, failedUntil time.Time
	tries                int
	// adopted says that the cgroup of a pod that ran before was looked at.
	adopted bool
}

// allocate returns what the pod is to be made like now: what its source wants,
// with the resources that the node granted.
func (w *worker) allocate(in mail, now time.Time) *pod.Desired {
	a, d := &w.allocation, in.desired
	if a.granted == nil || len(a.granted.Pod.Spec.Containers) == 0 {
		w.grant(d)
		return d
	}
	asked := a.wanted == d && !(a.pending != nil && !a.retryAt.IsZero() && (!now.Before(a.retryAt) || in.room))
	if asked {
		return a.granted
	}
	newer := a.wanted != d
	a.wanted = d
	switch {
	case sameResources(d.Pod, a.granted.Pod):
		a.pending, a.retryAt, a.tries = nil, time.Time{}, 0
		w.grant(d)
	case in.kill != nil || in.end != nil || w.phase > pod.PhaseRunning:
		w.grant(withResources(d, a.granted.Pod))
	default:
		if newer {
			a.tries = 0
		}
		w.askResize(d, now)
	}
	return a.granted
}

func (w *worker) grant(d *pod.Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allocation.granted = d
	if w.allocation.wanted == nil {
		w.allocation.wanted = d
	}
	w.deferred = w.allocation.pending != nil && w.allocation.pending.Reason == v1.PodReasonDeferred
}

// askResize asks the node for other resources. Who asks at the same time, a new
// pod or another resize, waits: each must see what the one before was granted.
func (w *worker) askResize(d *pod.Desired, now time.Time) {
	a := &w.allocation
	var v pod.Verdict
	if w.agent.cfg.Resizer != nil {
		w.agent.granting.Lock()
		defer w.agent.granting.Unlock()
		v = w.agent.cfg.Resizer.AdmitResize(d.Pod, a.granted.Pod, w.agent.others(w.uid))
		for _, victim := range v.Preempt {
			w.agent.End(victim, preempting())
		}
	}
	if v.Admitted() {
		a.pending, a.retryAt, a.failedUntil, a.tries = nil, time.Time{}, time.Time{}, 0
		a.progress = resizeCondition(v1.PodResizeInProgress, "", "", d, nil, now)
		w.grant(d)
		w.agent.cfg.Events.Event(d.Pod, v1.EventTypeNormal, "ResizeStarted", resizeMessage("Pod resize started", d, ""))
		w.log.Info("pod is resized")
		w.agent.makeRoom()
		return
	}
	reason, message := v.Reason, v.Message
	if reason != v1.PodReasonInfeasible {
		reason = v1.PodReasonDeferred
		a.retryAt = now.Add(firstResizeRetry)
		if a.tries > 0 {
			a.retryAt = now.Add(resizeRetry)
		}
		a.tries++
	} else {
		a.retryAt = time.Time{}
	}
	before := a.pending
	a.pending = resizeCondition(v1.PodResizePending, reason, message, d, before, now)
	w.grant(withResources(d, a.granted.Pod))
	if before == nil || before.Reason != reason || before.ObservedGeneration != d.Pod.Generation {
		w.agent.cfg.Events.Event(d.Pod, v1.EventTypeWarning, "Resize"+reason, resizeMessage("Pod resize "+reason, d, message))
		w.log.Info("resize waits", "reason", reason, "message", message)
	}
}

func resizeCondition(kind v1.PodConditionType, reason, message string, d *pod.Desired, before *v1.PodCondition, now time.Time) *v1.PodCondition {
	c := &v1.PodCondition{
		Type: kind, Status: v1.ConditionTrue, Reason: reason, Message: message,
		ObservedGeneration: d.Pod.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	if before != nil && before.Reason == reason {
		c.LastTransitionTime = before.LastTransitionTime
	}
	return c
}

// sameResources compares what a resize may change: CPU and memory of regular
// containers, of sidecars, and of the pod.
func sameResources(a, b *v1.Pod) bool {
	if !apiequality.Semantic.DeepEqual(a.Spec.Resources, b.Spec.Resources) {
		return false
	}
	for c := range resizable(&a.Spec) {
		other, _ := pod.ContainerSpec(&b.Spec, c.Name)
		if other != nil && !apiequality.Semantic.DeepEqual(c.Resources, other.Resources) {
			return false
		}
	}
	return true
}

// withResources is d with the resources of another generation of its spec.
func withResources(d *pod.Desired, from *v1.Pod) *pod.Desired {
	out := *d
	out.Pod = d.Pod.DeepCopy()
	out.Pod.Spec.Resources = from.Spec.Resources
	for c := range resizable(&out.Pod.Spec) {
		if other, _ := pod.ContainerSpec(&from.Spec, c.Name); other != nil {
			c.Resources = other.Resources
		}
	}
	return &out
}

// resizable yields the containers that a resize may be about.
func resizable(spec *v1.PodSpec) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for c, k := range pod.ContainerSpecs(spec) {
			if (k == pod.RegularContainer || k == pod.SidecarContainer) && !yield(c) {
				return
			}
		}
	}
}

// settleResize ends a resize of which nothing is left to do, and says when to
// look at one that waits.
func (w *worker) settleResize(v *view, now time.Time) {
	a, step := &w.allocation, &v.step
	if step.Finished || w.phase > pod.PhaseRunning {
		a.pending, a.progress = nil, nil
		return
	}
	busy := len(step.Resize) > 0 || len(step.Stop) > 0
	if a.progress != nil && !busy {
		a.progress, a.failedUntil = nil, time.Time{}
		w.agent.cfg.Events.Event(v.in.desired.Pod, v1.EventTypeNormal, "ResizeCompleted", resizeMessage("Pod resize completed", v.in.desired, ""))
	}
	if a.failedUntil.After(now) {
		step.Resize = nil // events must not make it try in a hurry
		step.WakeAt = earliest(step.WakeAt, a.failedUntil)
	}
	if a.pending != nil {
		step.WakeAt = earliest(step.WakeAt, a.retryAt)
	}
}

// resize carries out a step's resizes: the pod may have more first, then its
// containers change, and then the pod has no more than it should. One that the
// node or the runtime refuses is told, and tried again; it holds up nothing else.
func (w *worker) resize(ctx context.Context, d *pod.Desired, step *plan.Step) (did bool, err error) {
	a := &w.allocation
	err = w.mayShrink(d.Pod, step)
	if err == nil {
		err = w.doResize(ctx, d.Pod, step)
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, pod.ErrUnavailable) {
		return err == nil, err
	}
	now := time.Now()
	a.failedUntil = now.Add(resizeErrorRetry)
	step.WakeAt = earliest(step.WakeAt, a.failedUntil)
	before := a.progress
	a.progress = resizeCondition(v1.PodResizeInProgress, v1.PodReasonError, err.Error(), d, before, now)
	if before == nil || before.Reason != a.progress.Reason || before.Message != a.progress.Message {
		w.agent.cfg.Events.Event(d.Pod, v1.EventTypeWarning, "ResizeError", resizeMessage("Pod resize error", d, err.Error()))
		w.log.Warn("resize goes wrong", "error", err, "retry_in", resizeErrorRetry)
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

// mayShrink looks whether memory is in use that a lower limit would take away:
// on cgroup v2 the kernel would kill for it.
func (w *worker) mayShrink(p *v1.Pod, step *plan.Step) error {
	r := w.agent.cfg.Resizer
	if r == nil {
		return nil
	}
	var wrong []string
	check := func(what, id string, limit int64) {
		usage, err := r.MemoryUsage(p, id)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("missing %s memory usage", what))
		case usage >= limit:
			wrong = append(wrong, fmt.Sprintf("attempting to set %s memory limit (%d) below current usage (%d)", what, limit, usage))
		}
	}
	if now, next := r.MemoryLimit(p); next > 0 && (now == 0 || next < now) {
		check("pod", "", next)
	}
	for _, each := range step.Resize {
		if each.Container == nil {
			continue
		}
		had := w.memory.Held[each.Container.Name].MemoryLimit
		if limit := each.Container.Resources.Limits.Memory().Value(); limit > 0 && (had == 0 || limit < had) {
			check(fmt.Sprintf("container %q", each.Container.Name), each.ID, limit)
		}
	}
	switch len(wrong) {
	case 0:
		return nil
	case 1:
		return errors.New("cannot decrease memory limits: " + wrong[0])
	default:
		return errors.New("cannot decrease memory limits: [" + strings.Join(wrong, ", ") + "]")
	}
}

// reportResize adds what a resize has to tell.
func (w *worker) reportResize(r *pod.Report) {
	a := &w.allocation
	for _, c := range []*v1.PodCondition{a.pending, a.progress} {
		if c != nil {
			r.Conditions = append(r.Conditions, *c)
		}
	}
	if a.wanted == nil || a.pending == nil {
		return
	}
	r.Desired = a.wanted
	r.Allocated = make(map[string]v1.ResourceRequirements)
	for c := range resizable(&a.granted.Pod.Spec) {
		r.Allocated[c.Name] = c.Resources
	}
}

// adoptCgroup gives a pod that an earlier podd started its cgroup's limits, and
// the classes above it their weights.
func (w *worker) adoptCgroup(ctx context.Context, v *view) {
	if w.allocation.adopted || w.created || v.step.Phase != pod.PhaseRunning || v.step.CreateSandbox || len(v.seen.Sandboxes) == 0 || v.step.Finished {
		return
	}
	w.allocation.adopted = true
	if err := w.agent.cfg.Cgroups.EnsureCgroup(ctx, v.in.desired.Pod); err != nil && ctx.Err() == nil {
		w.log.Warn("the cgroup of a pod that ran before may have other limits", "error", err)
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
