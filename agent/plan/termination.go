package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// Termination is what was requested of a pod's termination so far: by its source (Kill),
// and by the node (End). It is a value; of later requests, only a shorter grace
// period counts.
type Termination struct {
	Kill *Kill
	End  *pod.Termination
}

// WithKill is the termination with another kill; changed says that this changes anything.
func (e Termination) WithKill(kill Kill) (next Termination, changed bool) {
	if e.Kill != nil && e.Kill.Grace <= kill.Grace {
		return e, false
	}
	e.Kill = &kill
	return e, true
}

// WithEnd is the termination with the node's decision: the first one counts, unless the
// source has removed the pod. Its condition is dated now, if it has no date.
func (e Termination) WithEnd(end pod.Termination, now time.Time) (next Termination, changed bool) {
	switch {
	case e.Kill != nil:
		if end.Grace == nil {
			return e, false
		}
		return e.WithKill(Kill{Grace: *end.Grace, Reason: end.Reason})
	case e.End != nil:
		if end.Grace == nil || e.End.Grace != nil && *end.Grace >= *e.End.Grace {
			return e, false
		}
		shorter := *e.End
		shorter.Grace = end.Grace
		e.End = &shorter
	default:
		if c := end.Condition; c != nil && c.LastTransitionTime.IsZero() {
			dated := *c
			dated.LastTransitionTime = metav1.NewTime(now)
			end.Condition = &dated
		}
		e.End = &end
	}
	return e, true
}

// Overdue is when a termination by the node takes too long; the zero value is before
// such a decision.
type Overdue struct {
	At time.Time
	// Settled says that this was reported, or that the pod terminated in time.
	Settled bool
}

// leastOverdue is the least time by which a termination may exceed its grace period.
const leastOverdue = 10 * time.Second

// overdue says, once, that the containers of a pod which the node terminates have
// outlived its grace period by half of it, at least by 10 s
// (pkg/kubelet/pod_workers.go, killPodNow).
func (s *Step) overdue(in *Input) {
	o := s.Memory.Overdue
	if s.End == nil || o.Settled || s.End.Reason != pod.ReasonEvicted && s.End.Reason != pod.ReasonPreempting {
		return
	}
	if o.At.IsZero() {
		grace := GracePeriod(in.Granted.Pod)
		if s.End.Grace != nil {
			grace = *s.End.Grace
		}
		o.At = in.Now.Add(max(grace+grace/2, leastOverdue))
	}
	left := len(s.Stop)+len(s.StopSandboxes) > 0
	if o.Settled = !left || !o.At.After(in.Now); !o.Settled {
		s.wakeAt(o.At)
	}
	s.Overdue = left && o.Settled
	s.Memory.Overdue = o
}
