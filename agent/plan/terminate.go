package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// finish ends a pod that is still desired, because it has completed or the node
// terminated it, and stops its sandbox. Its dead containers stay, for their status
// and logs.
func (s *Step) finish(in *Input) {
	s.Completed = true
	if until := s.sandboxDeathWindow(in, current(in)); s.End == nil && until.After(in.Now) {
		s.wakeAt(until) // it may be under way without podd
		return
	}
	if s.stopAll(in); len(s.Stop)+len(s.StopSandboxes) > 0 {
		return
	}
	s.Finished = true
	s.collect(in, nil)
}

// terminate ends every container, then every sandbox.
func (s *Step) terminate(in *Input) {
	s.Phase = pod.PhaseTerminating
	s.stopAll(in)
	if len(s.Stop) == 0 && len(s.StopSandboxes) == 0 && in.Phase == pod.PhaseTerminating {
		s.Phase = pod.PhaseTerminated
	}
}

// stopAll ends all containers in their order, then all sandboxes.
func (s *Step) stopAll(in *Input) {
	for i := range in.Observed.Containers {
		if c := &in.Observed.Containers[i]; mayRun(c) {
			s.stop(in, c, "Stopping container "+c.Name)
		}
	}
	s.orderStops(in)
	for i := range in.Observed.Sandboxes {
		if sb := &in.Observed.Sandboxes[i]; sb.Ready {
			s.StopSandboxes = append(s.StopSandboxes, sb.ID)
		}
	}
}

// cleanUp removes what the pod has on disk, then what the runtime still has.
func (s *Step) cleanUp(in *Input) {
	s.Phase = pod.PhaseGone
	s.CleanUp, s.KeepLogs = true, true // logs have their own time
	for i := range in.Observed.Containers {
		s.RemoveContainers = append(s.RemoveContainers, in.Observed.Containers[i].ID)
	}
	for i := range in.Observed.Sandboxes {
		s.RemoveSandboxes = append(s.RemoveSandboxes, in.Observed.Sandboxes[i].ID)
	}
}

// stop puts a container on the list of stops, with its own grace period.
func (s *Step) stop(in *Input, c *pod.Container, message string) {
	s.stopWithin(in, c, grace(in, c), message)
}

// stopWithin is stop with another grace period. What it returns is valid until
// the next call.
func (s *Step) stopWithin(in *Input, c *pod.Container, grace time.Duration, message string) *Stop {
	st := Stop{ID: c.ID, Name: c.Name, Grace: grace, Message: message}
	spec, _ := pod.ContainerSpec(&in.Granted.Pod.Spec, c.Name)
	if isOrphaned(in.Granted.Pod) {
		spec = c.Kept
	}
	hook := spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil
	if hook && NewCountdown(grace, in.Now).RunsHook() && c.State == pod.ContainerRunning {
		st.PreStop = spec
	}
	s.Stop = append(s.Stop, st)
	return &s.Stop[len(s.Stop)-1]
}

// grace is a container's grace period. It is its pod's or, if the manifest was removed,
// the one that the runtime kept. An End and a Kill override it; if there are both, the
// shorter one counts. If the pod's manifest was removed, its Kill has only the default
// until somebody shortens it.
func grace(in *Input, c *pod.Container) time.Duration {
	g := GracePeriod(in.Granted.Pod)
	kept := isOrphaned(in.Granted.Pod) && c.GracePeriod != nil
	if kept {
		g = *c.GracePeriod
	}
	if in.Kill != nil && (!kept || in.Kill.Grace < min(g, defaultGrace)) {
		g = in.Kill.Grace
	}
	if in.End != nil && in.End.Grace != nil && (in.Kill == nil || *in.End.Grace < g) {
		g = *in.End.Grace
	}
	return g
}

const defaultGrace = v1.DefaultTerminationGracePeriodSeconds * time.Second

// isOrphaned says that a pod is orphaned: only its name is known.
func isOrphaned(p *v1.Pod) bool { return len(p.Spec.Containers) == 0 }

// GracePeriod is that of the pod's deletion, once it is being deleted, else the pod's
// own, 30 s by default; pod.GracePeriod bounds it.
func GracePeriod(p *v1.Pod) time.Duration {
	for _, seconds := range []*int64{p.DeletionGracePeriodSeconds, p.Spec.TerminationGracePeriodSeconds} {
		if seconds != nil {
			return pod.GracePeriod(*seconds)
		}
	}
	return defaultGrace
}

// mayRun says that a container runs, or may run: its state is unknown to the runtime.
func mayRun(c *pod.Container) bool {
	return c.State == pod.ContainerRunning || c.State == pod.ContainerUnknown
}
