package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// stopFailing stops what runs and must not go on as it is: its postStart hook
// or a liveness or startup probe failed, or its spec names another image. Of
// init containers, only sidecars can be in that case.
func (s *Step) stopFailing(in *Input, current *pod.Sandbox) {
	for spec, k := range pod.ContainerSpecs(&in.Desired.Pod.Spec) {
		if k != pod.RegularContainer && k != pod.SidecarContainer {
			continue
		}
		c := madeIn(in, spec, current)
		if c == nil || c.State != pod.ContainerRunning {
			continue
		}
		if hook := in.PostStart[c.ID]; hook.State == pod.HookFailed {
			s.stop(in, c, "FailedPostStartHook")
			s.hookFailed(spec.Name, c.ID, hook, in.Now)
			continue
		}
		if why, probe := s.failing(in, spec, k, c); why != "" {
			s.stopToRestart(in, spec, k, c, why, probe)
		}
	}
}

// hookFailed remembers, once for each container, why it will wait.
func (s *Step) hookFailed(name, id string, hook pod.Hook, now time.Time) {
	if f := s.Memory.Failures[name]; f.ID != id || f.Waiting.Reason != ReasonPostStartHookError {
		s.Memory = s.Memory.Failed(name, id, pod.Waiting{Reason: ReasonPostStartHookError, Message: hook.Message}, now)
	}
}

// failing is what is wrong with a running container, in the kubelet's words,
// and the probe that says so; empty and nil when it may go on. The order among
// the causes is upstream's, which differs for sidecars.
func (s *Step) failing(in *Input, spec *v1.Container, k pod.ContainerKind, c *pod.Container) (why string, probe *v1.Probe) {
	results := in.Probes.Of(spec.Name, c.ID)
	changed := c.Hash != "" && c.Hash != s.Memory.hashes[spec.Name]
	switch {
	case k == pod.SidecarContainer && results.Startup == pod.ProbeFailed:
		return "failed startup probe", spec.StartupProbe
	case changed:
		return "definition changed", nil
	case results.Live == pod.ProbeFailed:
		return "failed liveness probe", spec.LivenessProbe
	case results.Startup == pod.ProbeFailed:
		return "failed startup probe", spec.StartupProbe
	}
	return "", nil
}

// stopToRestart stops a container that its successor follows, whatever its exit
// code will be. Restart rules are about exit codes and have no say here; a
// policy Never has, but for a changed spec.
//
// In the kubelet, the wait after such a stop counts from the end before this
// one, and a first one does not count: a container that was well for long is
// restarted at once. Here it is its own life that tells.
func (s *Step) stopToRestart(in *Input, spec *v1.Container, k pod.ContainerKind, c *pod.Container, why string, probe *v1.Probe) {
	message := "Container " + spec.Name + " " + why
	restart := probe == nil || k == pod.SidecarContainer || !never(in.Desired.Pod, spec)
	switch {
	case k == pod.SidecarContainer:
		message = "Init container " + spec.Name + " " + why
	case restart:
		message += ", will be restarted"
	}
	within := grace(in, c)
	if probe != nil && in.Desired.Pod.DeletionGracePeriodSeconds == nil && probe.TerminationGracePeriodSeconds != nil {
		within = pod.GraceSeconds(*probe.TerminationGracePeriodSeconds)
	}
	s.stopWithin(in, c, within, message).Probe = probe != nil
	if restart && s.Memory.Killed[spec.Name].ID != c.ID {
		s.Memory.Killed = with(s.Memory.Killed, spec.Name, Killed{ID: c.ID, First: c.RestartCount == 0})
	}
}

// nothingLeft says that a failed probe ends the last regular container, none of
// which comes back: it is the end of the whole pod then, as upstream has it, with
// the pod's grace period.
func (s *Step) nothingLeft(in *Input) bool {
	if !slices.ContainsFunc(s.Stop, func(st Stop) bool { return st.Probe }) {
		return false
	}
	p := in.Desired.Pod
	for i := range p.Spec.Containers {
		spec := &p.Spec.Containers[i]
		c := in.Observed.Latest(spec.Name)
		if c == nil {
			return false
		}
		ends := slices.ContainsFunc(s.Stop, func(st Stop) bool {
			return st.ID == c.ID && st.Probe && s.Memory.Killed[spec.Name].ID != c.ID
		})
		if !ends && !s.done(p, spec, c) {
			return false
		}
	}
	return true
}

// never says that the policy of a container, or else of its pod, is Never.
func never(p *v1.Pod, spec *v1.Container) bool {
	if spec.RestartPolicy != nil {
		return *spec.RestartPolicy == v1.ContainerRestartPolicyNever
	}
	return p.Spec.RestartPolicy == v1.RestartPolicyNever
}
