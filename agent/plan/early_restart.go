package plan

import (
	"time"

	"podd/agent/backoff"
	"podd/internal/pod"
)

// EarlyRestart is a restart that a pod's own back-off policy wants earlier than the node's
// policy allows. A budget of the node pays for it (ADR 0032).
type EarlyRestart struct {
	// End is the end that the restart follows, and identifies it.
	End time.Time
	// PodPolicyAt is when the pod's policy allows it, NodePolicyAt when the node's does.
	PodPolicyAt, NodePolicyAt time.Time
	// GrantedAt is when the budget allows it; zero until it was asked.
	GrantedAt time.Time
}

// EarlyRestartGranted returns the memory with a place for an early restart of name.
func (m Memory) EarlyRestartGranted(name string, e EarlyRestart) Memory {
	m.EarlyRestarts = with(m.EarlyRestarts, name, e)
	return m
}

// backOff says when a container may start again after an end, and how long that wait is
// from the end on. A restart that is early needs a place in the node's budget: until it
// has one, the node's policy applies, and the Step asks for it.
func (s *Step) backOff(in *Input, name string, end backoff.Exit) (until time.Time, wait time.Duration) {
	nodeAt, wait := in.Policy.NextStart(s.Memory.NodeBackOff[name], end)
	own, has := podPolicy(in)
	if !has {
		return nodeAt, wait
	}
	podAt, podWait := own.NextStart(s.Memory.PodBackOff[name], end)
	if !podAt.Before(nodeAt) || !nodeAt.After(in.Now) {
		return podAt, podWait
	}
	early, asked := s.Memory.EarlyRestarts[name]
	switch {
	case !asked || !early.End.Equal(end.At):
		if s.EarlyRestarts == nil {
			s.EarlyRestarts = make(map[string]EarlyRestart)
		}
		s.EarlyRestarts[name] = EarlyRestart{End: end.At, PodPolicyAt: podAt, NodePolicyAt: nodeAt}
		return nodeAt, wait
	case early.GrantedAt.After(podAt):
		return early.GrantedAt, early.GrantedAt.Sub(end.At).Round(100 * time.Millisecond) // for people
	default:
		return podAt, podWait
	}
}

// restarted remembers that a container is restarted after an end.
func (s *Step) restarted(in *Input, name string, end backoff.Exit) {
	s.Memory.NodeBackOff = with(s.Memory.NodeBackOff, name, in.Policy.Restart(s.Memory.NodeBackOff[name], end, in.Now))
	if own, has := podPolicy(in); has {
		s.Memory.PodBackOff = with(s.Memory.PodBackOff, name, own.Restart(s.Memory.PodBackOff[name], end, in.Now))
	}
	s.Memory.EarlyRestarts = without(s.Memory.EarlyRestarts, name)
}

// podPolicy is the node's back-off policy, overridden by what the pod sets; has is false
// if it sets nothing.
func podPolicy(in *Input) (policy backoff.Policy, has bool) {
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
