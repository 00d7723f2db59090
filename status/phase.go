package status

import (
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// phase sets the pod's phase, and its reason and message.
//
// A terminal phase is final. It is also withheld while a container may still
// run: others take it as the sign that what the pod held is free.
func (c *computation) phase(s *v1.PodStatus) {
	if pod.IsPhaseTerminal(c.previous.Phase) {
		s.Phase, s.Reason, s.Message = c.previous.Phase, c.previous.Reason, c.previous.Message
		return
	}
	s.Phase = c.computePhase(s)
	ended := s.Phase
	if c.report.Failed {
		ended = v1.PodFailed
	}
	if !pod.IsPhaseTerminal(ended) || !c.mayRun() {
		s.Phase, s.Reason, s.Message = ended, c.report.Reason, c.report.Message
		return
	}
	switch {
	case c.everReported():
		s.Phase = c.previous.Phase
	case pod.IsPhaseTerminal(s.Phase) && c.anyRegularCreated():
		s.Phase = v1.PodRunning
	case pod.IsPhaseTerminal(s.Phase):
		s.Phase = v1.PodPending
	}
}

// everReported says that a node agent has reported the pod before. Pending alone does not
// prove that: it is also the default phase of a pod that no agent has reported.
func (c *computation) everReported() bool {
	return c.previous.Phase != "" && (c.previous.Phase != v1.PodPending || !c.previous.StartTime.IsZero())
}

// mayRun says that a container of the pod runs, or may do so for all we know.
func (c *computation) mayRun() bool {
	for i := range c.report.Observed.Containers {
		switch c.report.Observed.Containers[i].State {
		case pod.ContainerRunning:
			return true
		case pod.ContainerUnknown:
			if c.report.Phase < pod.PhaseTerminated {
				return true
			}
		case pod.ContainerCreated, pod.ContainerExited:
		}
	}
	return false
}

// phaseCounts counts containers the way the kubelet's getPhase does. There is no count
// of containers without a status: Compute gives each one of the spec its own.
type phaseCounts struct {
	spec          *v1.PodSpec
	restartingAll bool

	pendingInit, pendingSidecars, failedInit int
	running, waiting                         int
	stopped, stoppedForGood, succeeded       int
}

// computePhase is the phase that the containers' states alone give.
func (c *computation) computePhase(s *v1.PodStatus) v1.PodPhase {
	t := phaseCounts{spec: &c.pod.Spec, restartingAll: c.restartingAll()}
	for i := range c.pod.Spec.InitContainers {
		spec := &c.pod.Spec.InitContainers[i]
		if pod.IsSidecar(spec) {
			t.sidecar(pod.FindContainerStatus(s.InitContainerStatuses, spec.Name))
		} else {
			t.init(spec, pod.FindContainerStatus(s.InitContainerStatuses, spec.Name), c.hasSuccessor(spec.Name))
		}
	}
	for i := range c.pod.Spec.Containers {
		spec := &c.pod.Spec.Containers[i]
		t.regular(spec, pod.FindContainerStatus(s.ContainerStatuses, spec.Name), c.hasSuccessor(spec.Name))
	}
	switch {
	case t.failedInit > 0:
		return v1.PodFailed
	case t.pendingInit > 0, t.pendingSidecars > 0 && !c.regularInSandbox(), t.waiting > 0:
		return c.failedIfFinished(v1.PodPending)
	case t.running > 0:
		return v1.PodRunning
	case t.stopped > 0:
		if c.finished() || t.stopped == t.stoppedForGood {
			if t.stopped == t.succeeded {
				return v1.PodSucceeded
			}
			return v1.PodFailed
		}
		return v1.PodRunning
	}
	return c.failedIfFinished(v1.PodPending)
}

// finished says that no part of the pod will be started again, whatever its restart
// policy. Static pods that are stopped keep the phase they had, as in the kubelet
// (kubernetes/kubernetes#116484).
func (c *computation) finished() bool { return c.report.Phase >= pod.PhaseTerminated && !c.static() }

// failedIfFinished returns Failed for a finished pod that never got further than p, and
// otherwise p.
func (c *computation) failedIfFinished(p v1.PodPhase) v1.PodPhase {
	if c.finished() {
		return v1.PodFailed
	}
	return p
}

// willRestart says that a container which ended so, in failure or not, is started again.
func (t *phaseCounts) willRestart(spec *v1.Container, end *v1.ContainerStateTerminated, failed bool) bool {
	return t.restartingAll || end.Reason == pod.ReasonRestartingAllContainers || pod.ShouldRestart(t.spec, spec, end.ExitCode, failed)
}

// hasFailed says that a container which ended so has failed.
func hasFailed(k pod.ContainerKind, end *v1.ContainerStateTerminated) bool {
	return pod.Failed(k, end.ExitCode, end.Reason)
}

// completed says that an init container has ended and has not failed.
func completed(end *v1.ContainerStateTerminated) bool {
	return end != nil && !hasFailed(pod.InitContainer, end)
}

// hasSuccessor says that the newest container of a name has a successor whatever its exit
// code is.
func (c *computation) hasSuccessor(name string) bool {
	last := c.report.Observed.LatestContainer(name)
	return last != nil && c.report.WillRestart[last.ID]
}

func (t *phaseCounts) init(spec *v1.Container, s *v1.ContainerStatus, hasSuccessor bool) {
	end := lastEnd(s)
	switch {
	case end == nil:
		t.pendingInit++
	case !completed(end) && !hasSuccessor && !t.willRestart(spec, end, true):
		t.failedInit++
	}
}

// sidecar counts a restartable init container. Its ends do not matter to the
// phase, only whether it was ever up.
func (t *phaseCounts) sidecar(s *v1.ContainerStatus) {
	switch {
	case s.State.Running != nil:
		if s.Started == nil || !*s.Started {
			t.pendingSidecars++
		}
		t.running++
	case lastEnd(s) == nil:
		t.pendingSidecars++
		t.waiting++
	}
}

// regular counts a container; hasSuccessor says that a successor comes whatever its
// exit code.
func (t *phaseCounts) regular(spec *v1.Container, s *v1.ContainerStatus, hasSuccessor bool) {
	end := lastEnd(s)
	switch {
	case s.State.Running != nil:
		t.running++
	case end == nil:
		t.waiting++
	default:
		t.stopped++
		if !hasSuccessor && !t.willRestart(spec, end, hasFailed(pod.RegularContainer, end)) {
			t.stoppedForGood++
		}
		// One that waits to be started again has not succeeded, however it
		// ended the last time.
		if !hasFailed(pod.RegularContainer, end) && s.State.Terminated != nil {
			t.succeeded++
		}
	}
}

// lastEnd is how a container that does not run ended; nil if it runs, or if it
// never ran.
func lastEnd(s *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case s == nil || s.State.Running != nil:
		return nil
	case s.State.Terminated != nil:
		return s.State.Terminated
	case s.State.Waiting != nil:
		return s.LastTerminationState.Terminated
	}
	return nil
}

// regularInSandbox says that a regular container was made in the newest
// sandbox: the init containers had completed, whatever they do now.
func (c *computation) regularInSandbox() bool {
	sandboxes := c.report.Observed.Sandboxes
	return len(sandboxes) > 0 && c.report.Observed.InitContainersDone(&c.pod.Spec, sandboxes[0].ID)
}
