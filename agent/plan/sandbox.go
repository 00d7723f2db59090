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

// sandbox returns the one that containers belong into, or nil. More than one
// ready sandbox, a dead newest one, or one without an address is beyond repair
// and replaced, as in upstream's PodSandboxChanged.
func sandbox(in *Input) *pod.Sandbox {
	all := in.Observed.Sandboxes
	if len(all) == 0 {
		return nil
	}
	ready := 0
	for i := range all {
		if all[i].Ready {
			ready++
		}
	}
	newest := &all[0]
	if newest.Ready && ready == 1 && (newest.HostNetwork || len(newest.IPs) > 0) &&
		newest.HostNetwork == in.Desired.Pod.Spec.HostNetwork {
		return newest
	}
	return nil
}

// newSandbox asks for a sandbox. Whoever stopped the former one behind podd's
// back may still be at it when the runtime calls it dead: two that take the same
// network down get in each other's way.
func (s *Step) newSandbox(in *Input) {
	all := in.Observed.Sandboxes
	if len(all) > 0 {
		due := pod.Happened(all[0].CreatedAt, in.Now).Add(sandboxPace)
		if all[0].CreatedAt.After(in.Now) {
			due = time.Time{}
		}
		if died := s.Memory.Died; all[0].ID == s.Memory.Sandbox && !died.After(in.Now) && died.Add(dying).After(due) {
			due = died.Add(dying)
		}
		if due.After(in.Now) {
			s.wakeAt(due)
			return
		}
		s.Attempt = all[0].Attempt + 1
		s.SandboxChanged = true
	}
	s.CreateSandbox = true
	s.Attempt = uint32(in.Memory.attempt("", int64(s.Attempt), in.Now))
	for i := range all {
		s.ReleaseSandboxes = append(s.ReleaseSandboxes, all[i].ID)
	}
}

// beginsAgain says whether a pod that has not run to its end begins (again) in a
// new sandbox. One that never restarts does so only until one of its regular
// containers ran; unlike the kubelet's, it is not stuck for having begun
// with its init containers, nor are containers of it with a restart policy of
// their own.
func (s *Step) beginsAgain(in *Input) bool {
	p := in.Desired.Pod
	began := false
	for i := range p.Spec.Containers {
		c := in.Observed.Latest(p.Spec.Containers[i].Name)
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

// lose ends a pod that will not begin again and has not run to its end: its
// sandbox died before all regular containers were made. It would never come to
// an end by itself.
func (s *Step) lose(in *Input, current *pod.Sandbox) {
	if until := s.sandboxMayDie(in, current); until.After(in.Now) {
		s.wakeAt(until) // its end may be under way without podd
		return
	}
	p := in.Desired.Pod
	var missing []string
	for i := range p.Spec.Containers {
		if c := in.Observed.Latest(p.Spec.Containers[i].Name); c == nil || c.State == pod.ContainerCreated {
			missing = append(missing, p.Spec.Containers[i].Name)
		}
	}
	s.End = &pod.End{
		Reason: pod.ReasonSandboxLost,
		Message: fmt.Sprintf("The pod's sandbox was lost after some of its containers had run and before these were started: %s. "+
			"With restartPolicy Never, nothing of the pod is started again.", strings.Join(missing, ", ")),
	}
	s.finish(in)
}
