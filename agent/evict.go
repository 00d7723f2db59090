package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Limits watches what a pod uses of the node where no limit of the kernel holds the pod
// back.
type Limits interface {
	// Limited says whether the pod has such a limit; otherwise nothing watches it.
	Limited(p *v1.Pod) bool
	// Watch blocks until the pod has exceeded one, and says which, or until ctx ends.
	Watch(ctx context.Context, p *v1.Pod) (e pod.Eviction, exceeded bool)
}

type noLimits struct{}

func (noLimits) Limited(*v1.Pod) bool                                    { return false }
func (noLimits) Watch(context.Context, *v1.Pod) (e pod.Eviction, _ bool) { return e, false }

// Evict ends a pod for good (End) with the reason Evicted, because of what it uses of the
// node. It spares only pods with the system's priorities, and returns false for them.
// Unlike the kubelet, it also evicts the node's own pods when they exceed the limits of a
// single pod; an eviction for the node's sake spares those itself (package eviction).
// Evict also leaves a pod without a worker, or one that has ended, as it is. A pod that
// is ending for another reason gets the shorter grace period, and Evict returns true: the
// pod gives back soon what it uses. Any goroutine may call it; it never blocks.
func (a *Agent) Evict(uid pod.UID, e pod.Eviction) bool {
	a.mu.Lock()
	w := a.workers[uid]
	a.mu.Unlock()
	if w == nil {
		return false
	}
	p := w.countedPod()
	switch {
	case p == nil:
		return false
	case pod.IsSystem(p):
		w.log.Warn("not evicting a pod of the system's priority", "signal", e.Signal, "message", e.Message)
		return false
	}
	decided, changed := w.applyEnd(pod.Termination{Reason: pod.ReasonEvicted, Message: e.Message, Grace: e.Grace, Condition: e.Condition})
	if decided {
		a.metrics.evictions.WithLabelValues(e.Signal).Inc()
	}
	return changed
}

// Released says whether a pod no longer uses the node: it has no worker, or has
// ended and released its volumes and its cgroup. Any goroutine may call it.
func (a *Agent) Released(uid pod.UID) bool {
	a.mu.Lock()
	w := a.workers[uid]
	a.mu.Unlock()
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished && w.released
}

// watchLimits has a pod watched as long as it may run; it costs nothing for one
// without limits.
func (w *worker) watchLimits(v *view) {
	p := v.granted.Pod
	switch watch := !v.step.Completed && v.step.End == nil && v.in.Kill == nil; {
	case !watch && w.stopLimitsWatch != nil:
		w.stopLimitsWatch()
		w.stopLimitsWatch = nil
	case watch && w.stopLimitsWatch == nil && w.agent.cfg.Limits.Limited(p):
		w.stopLimitsWatch = w.spawn(func(ctx context.Context) {
			if e, exceeded := w.agent.cfg.Limits.Watch(ctx, p); exceeded {
				w.agent.Evict(w.uid, e)
			}
		})
	}
}
