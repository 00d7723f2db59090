package plan

import "podd/internal/pod"

// messageDeadline is the kubelet's (pkg/kubelet/active_deadline.go).
const messageDeadline = "Pod was active on the node longer than the specified deadline"

// deadline terminates a pod that has been on the node for its activeDeadlineSeconds,
// and until then wakes the worker exactly when they are over.
func (s *Step) deadline(in *Input) {
	seconds := in.Granted.Pod.Spec.ActiveDeadlineSeconds
	if s.End != nil || seconds == nil || in.StartTime.IsZero() {
		return
	}
	over := in.StartTime.Add(pod.Seconds(*seconds))
	if over.After(in.Now) {
		s.wakeAt(over)
		return
	}
	s.End = &pod.Termination{Reason: pod.ReasonDeadlineExceeded, Message: messageDeadline}
}
