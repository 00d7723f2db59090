package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// terminate ends every container, then every sandbox.
func (s *Step) terminate(in *Input) {
	s.Phase = pod.PhaseTerminating
	for i := range in.Observed.Containers {
		if c := &in.Observed.Containers[i]; mayRun(c) {
			s.stop(in, c, "Stopping container "+c.Name)
		}
	}
	for i := range in.Observed.Sandboxes {
		if sb := &in.Observed.Sandboxes[i]; sb.Ready {
			s.StopSandboxes = append(s.StopSandboxes, sb.ID)
		}
	}
	if len(s.Stop) == 0 && len(s.StopSandboxes) == 0 && in.Phase == pod.PhaseTerminating {
		s.Phase = pod.PhaseTerminated
	}
}

// cleanUp removes what the pod has on disk, then what the runtime still holds.
func (s *Step) cleanUp(in *Input) {
	s.Phase = pod.PhaseGone
	s.CleanUp = true
	for i := range in.Observed.Containers {
		s.RemoveContainers = append(s.RemoveContainers, in.Observed.Containers[i].ID)
	}
	for i := range in.Observed.Sandboxes {
		s.RemoveSandboxes = append(s.RemoveSandboxes, in.Observed.Sandboxes[i].ID)
	}
}

func (s *Step) stop(in *Input, c *pod.Container, message string) {
	grace := GracePeriod(in.Desired.Pod)
	if in.Kill != nil {
		grace = in.Kill.Grace
	}
	if orphan := len(in.Desired.Pod.Spec.Containers) == 0; orphan && c.GracePeriod != nil {
		grace = *c.GracePeriod // the manifest is gone; the runtime kept what it said
	}
	s.Stop = append(s.Stop, Stop{ID: c.ID, Name: c.Name, Grace: grace, Message: message})
}

// GracePeriod is the pod's own, 30 s where it does not say.
func GracePeriod(p *v1.Pod) time.Duration {
	if p.Spec.TerminationGracePeriodSeconds == nil {
		return v1.DefaultTerminationGracePeriodSeconds * time.Second
	}
	return time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second
}

// mayRun says that a container runs, or may: the runtime lost sight of it.
func mayRun(c *pod.Container) bool {
	return c.State == pod.ContainerRunning || c.State == pod.ContainerUnknown
}
