package plan

import (
	"time"

	"podd/agent/backoff"
	"podd/internal/pod"
)

// Early is a restart that a pod's own back-off policy wants earlier than the node's
// policy allows. A budget of the node pays for it (ADR 0032).
type Early struct {
	// End is the end that the restart follows, and identifies it.
	End time.Time
	// Wanted is when the pod's policy wants it, Otherwise when the node's would have it.
	Wanted, Otherwise time.Time
	// At is when the budget has room for it; zero while it was not asked for.
	At time.Time
}

// Placed returns the memory with a place for an early restart of name.
func (m Memory) Placed(name string, e Early) Memory {
	m.Early = with(m.Early, name, e)
	return m
}

// backOff says when a container may start again after an end, and how long that wait is
// from the end on. A restart that is early needs a place in the node's budget: until it
// has one, the node's policy applies, and the Step asks for it.
func (s *Step) backOff(in *Input, name string, end backoff.End) (until time.Time, wait time.Duration) {
	otherwise, wait := in.Policy.Until(s.Memory.Restarts[name], end)
	own, has := ownPolicy(in)
	if !has {
		return otherwise, wait
	}
	wanted, ownWait := own.Until(s.Memory.Own[name], end)
	if !wanted.Before(otherwise) || !otherwise.After(in.Now) {
		return wanted, ownWait
	}
	early, asked := s.Memory.Early[name]
	switch {
	case !asked || !early.End.Equal(end.At):
		if s.Early == nil {
			s.Early = make(map[string]Early)
		}
		s.Early[name] = Early{End: end.At, Wanted: wanted, Otherwise: otherwise}
		return otherwise, wait
	case early.At.After(wanted):
		return early.At, early.At.Sub(end.At).Round(100 * time.Millisecond) // for people
	default:
		return wanted, ownWait
	}
}

// restarted remembers that a container is restarted after an end.
func (s *Step) restarted(in *Input, name string, end backoff.End) {
	s.Memory.Restarts = with(s.Memory.Restarts, name, in.Policy.Restart(s.Memory.Restarts[name], end, in.Now))
	if own, has := ownPolicy(in); has {
		s.Memory.Own = with(s.Memory.Own, name, own.Restart(s.Memory.Own[name], end, in.Now))
	}
	s.Memory.Early = without(s.Memory.Early, name)
}

// ownPolicy is the node's back-off policy, overridden by what the pod sets; has is false
// if it sets nothing.
func ownPolicy(in *Input) (policy backoff.Policy, has bool) {
	policy = in.Policy
	if len(in.Granted.Pod.Annotations) == 0 {
		return policy, false
	}
	own, _ := pod.BackOffOf(in.Granted.Pod) // who validates the pod tells of errors
	if own.Initial > 0 {
		policy.Initial = own.Initial
	}
	if own.Max > 0 {
		policy.Max = own.Max
	}
	policy.Success = own.Success
	return policy, own != pod.BackOff{}
}
