package allocation

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// Waits of a resize that does not fit now (upstream's allocation manager).
const (
	firstRetry = 30 * time.Second
	laterRetry = 3 * time.Minute
)

// Allocation is what the node granted one pod, and how far a resize of it is. It is a
// value: the methods return a changed copy. A pod that has not been synced yet has the
// zero Allocation.
type Allocation struct {
	// Desired is what the pod's source desired when Granted was decided.
	Desired *pod.Desired
	// Granted is Desired with the resources that the node granted.
	Granted *pod.Desired
	// Pending and Progress are the pod's conditions PodResizePending and
	// PodResizeInProgress; nil for none.
	Pending, Progress *v1.PodCondition
	// RetryAt is when the node decides again even if no resources were freed;
	// zero for never.
	RetryAt time.Time

	tries     int
	undecided bool // the node has yet to be asked about Desired
}

// Proposal is what a pod's source desires now.
type Proposal struct {
	Desired *pod.Desired
	// ResourcesFreed says that resources of the node were freed.
	ResourcesFreed bool
	// UsageUnknown says that podd does not know yet all pods that use the node's
	// resources, and so not what fits.
	UsageUnknown bool
	// Terminating says that the pod ends: it keeps what it has.
	Terminating bool
	Now         time.Time
}

// Propose applies a proposal. ask says that the node must decide whether the pod may have
// Desired's resources instead of Granted's; pass its decision to ApplyVerdict.
func (a Allocation) Propose(p Proposal) (next Allocation, ask bool) {
	switch {
	case a.Granted == nil || len(a.Granted.Pod.Spec.Containers) == 0:
		a.Desired, a.Granted = p.Desired, p.Desired
		return a, false
	case a.Desired == p.Desired && !a.due(p):
		return a, false
	case ResourcesOf(a.Granted.Pod).Match(p.Desired.Pod):
		return a.fullyGranted(p.Desired), false
	}
	if a.Desired != p.Desired {
		a.tries = 0
	}
	a.Desired, a.undecided = p.Desired, p.UsageUnknown
	if p.Terminating || p.UsageUnknown {
		return a.keepGranted(), false
	}
	return a, true
}

// due says that the node is to decide (again) about the same resize.
func (a Allocation) due(p Proposal) bool {
	if a.undecided {
		return !p.UsageUnknown
	}
	return a.Pending != nil && !a.RetryAt.IsZero() && (p.ResourcesFreed || !p.Now.Before(a.RetryAt))
}

// fullyGranted is the allocation of a pod that has the desired resources.
func (a Allocation) fullyGranted(d *pod.Desired) Allocation {
	return Allocation{Desired: d, Granted: d, Progress: a.Progress}
}

// keepGranted is the allocation with what was granted, for what is desired now.
func (a Allocation) keepGranted() Allocation {
	a.Granted = ResourcesOf(a.Granted.Pod).ApplyTo(a.Desired)
	return a
}

// ApplyVerdict applies the node's decision. A resize that is neither admitted nor
// infeasible waits for room, or for some time to pass.
func (a Allocation) ApplyVerdict(v pod.Verdict, now time.Time) Allocation {
	if v.Admitted() {
		next := a.fullyGranted(a.Desired)
		next.Progress = a.condition(v1.PodCondition{Type: v1.PodResizeInProgress}, nil, now)
		return next
	}
	reason := v.Reason
	if reason != v1.PodReasonInfeasible {
		reason = v1.PodReasonDeferred
		a.RetryAt = now.Add(laterRetry)
		if a.tries == 0 {
			a.RetryAt = now.Add(firstRetry)
		}
		a.tries++
	} else {
		a.RetryAt = time.Time{}
	}
	a.Pending = a.condition(v1.PodCondition{Type: v1.PodResizePending, Reason: reason, Message: v.Message}, a.Pending, now)
	return a.keepGranted()
}

// ResizeCompleted is the allocation after the last step of a resize; changed says that one
// was in progress.
func (a Allocation) ResizeCompleted() (next Allocation, changed bool) {
	changed = a.Progress != nil
	a.Progress = nil
	return a, changed
}

// ResizeFailed is the allocation after a resize that the node or the runtime would not
// carry out; changed says that it did not fail so before.
func (a Allocation) ResizeFailed(err error, now time.Time) (next Allocation, changed bool) {
	before := a.Progress
	a.Progress = a.condition(v1.PodCondition{Type: v1.PodResizeInProgress, Reason: v1.PodReasonError, Message: err.Error()}, before, now)
	return a, before == nil || before.Message != a.Progress.Message
}

// ResizeCanceled is the allocation of a pod that terminates: it is not resized any more.
func (a Allocation) ResizeCanceled() Allocation {
	a.Pending, a.Progress = nil, nil
	return a
}

// Deferred says that the pod would have more once there is room, or once it is
// known how much there is.
func (a Allocation) Deferred() bool {
	return a.undecided || a.Pending != nil && a.Pending.Reason == v1.PodReasonDeferred
}

// ResizePending says that the pod does not have what its source desires.
func (a Allocation) ResizePending() bool { return a.undecided || a.Pending != nil }

// PendingChanged says that a pending resize differs from the previous one: in its reason,
// or in the generation of the spec.
func (a Allocation) PendingChanged(before Allocation) bool {
	p, b := a.Pending, before.Pending
	return p != nil && (b == nil || b.Reason != p.Reason || b.ObservedGeneration != p.ObservedGeneration)
}

// condition completes a condition; it is as old as the one before if the reason is
// the same.
func (a Allocation) condition(c v1.PodCondition, before *v1.PodCondition, now time.Time) *v1.PodCondition {
	c.Status, c.ObservedGeneration, c.LastTransitionTime = v1.ConditionTrue, a.Desired.Pod.Generation, metav1.NewTime(now)
	if before != nil && before.Reason == c.Reason {
		c.LastTransitionTime = before.LastTransitionTime
	}
	return &c
}
