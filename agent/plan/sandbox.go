package plan

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// sandboxPace is the shortest time from one sandbox of a pod to the next. A
// sandbox that lived longer is replaced at once; one that dies as it starts
// must not keep the runtime busy at the expense of other pods. One second is
// the pace at which the kubelet's relist would notice.
const sandboxPace = time.Second

// current is the sandbox for the pod's containers; nil for none.
func current(in *Input) *pod.Sandbox { return in.Observed.CurrentSandbox(&in.Granted.Pod.Spec) }

// newSandbox requests a sandbox. If somebody else stopped the previous one, they may
// not have finished when the runtime reports it as dead, and two teardowns of the
// same network conflict.
func (s *Step) newSandbox(in *Input) {
	all := in.Observed.Sandboxes
	if len(all) > 0 {
		due := pod.WithMonotonic(all[0].CreatedAt, in.Now).Add(sandboxPace)
		if all[0].CreatedAt.After(in.Now) {
			due = time.Time{}
		}
		if died := s.Memory.SandboxDiedAt; all[0].ID == s.Memory.LastReadySandbox && !died.After(in.Now) && died.Add(sandboxDeathTime).After(due) {
			due = died.Add(sandboxDeathTime)
		}
		if due.After(in.Now) {
			s.wakeAt(due)
			return
		}
		s.Attempt = all[0].Attempt + 1
		s.sandboxChanged(in)
	}
	s.CreateSandbox = true
	s.Attempt = uint32(in.Memory.attempt("", int64(s.Attempt), in.Now))
	for i := range all {
		s.ReleaseSandboxes = append(s.ReleaseSandboxes, all[i].ID)
	}
}

// changeSandbox says that the sandbox is replaced, if containers are stopped for that.
// With policy Never, how they end decides whether it is.
func (s *Step) changeSandbox(in *Input) {
	if len(s.Stop)+len(s.StopSandboxes) > 0 && in.Granted.Pod.Spec.RestartPolicy != v1.RestartPolicyNever && s.needsNewSandbox(in) {
		s.sandboxChanged(in)
	}
}

func (s *Step) sandboxChanged(in *Input) {
	if all := in.Observed.Sandboxes; len(all) > 0 && s.Memory.ReportedSandbox != all[0].ID {
		s.SandboxChanged, s.Memory.ReportedSandbox = true, all[0].ID
	}
}

// needsNewSandbox says whether a pod that has not completed starts (again) in a new
// sandbox. With policy Never it does so only until one of its regular containers ran;
// unlike in the kubelet, it is not stuck if only init containers had started, nor are
// containers with a restart policy of their own.
func (s *Step) needsNewSandbox(in *Input) bool {
	p := in.Granted.Pod
	began := false
	for i := range p.Spec.Containers {
		c := in.Observed.LatestContainer(p.Spec.Containers[i].Name)
		if c == nil || c.State == pod.ContainerCreated || c.State == pod.ContainerExited && c.StartedAt.IsZero() {
			continue
		}
		began = true
		if !s.done(p, &p.Spec.Containers[i], c) {
			return true
		}
	}
	return !began || p.Spec.RestartPolicy != v1.RestartPolicyNever
}

// markSandboxLost ends a pod that will not start again and has not completed: its sandbox
// died before all regular containers were created. It would never complete by itself.
func (s *Step) markSandboxLost(in *Input, current *pod.Sandbox) {
	if until := s.sandboxDeathWindow(in, current); until.After(in.Now) {
		s.wakeAt(until) // its end may be under way without podd
		return
	}
	p := in.Granted.Pod
	var missing []string
	for i := range p.Spec.Containers {
		if c := in.Observed.LatestContainer(p.Spec.Containers[i].Name); c == nil || c.State == pod.ContainerCreated {
			missing = append(missing, p.Spec.Containers[i].Name)
		}
	}
	s.End = &pod.Termination{
		Reason: pod.ReasonSandboxLost,
		Message: fmt.Sprintf("The pod's sandbox was lost after some of its containers had run and before these were started: %s. "+
			"With restartPolicy Never, nothing of the pod is started again.", strings.Join(missing, ", ")),
	}
	s.finish(in)
}
