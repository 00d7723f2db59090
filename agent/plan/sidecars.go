package plan

import (
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// keep (re)starts a sidecar that does not run, whatever the pod's restart policy is,
// and says whether it runs.
func (s *Step) keep(in *Input, spec *v1.Container, current *pod.Sandbox) bool {
	c := madeIn(in, spec, current)
	if c == nil || c.State != pod.ContainerRunning {
		s.launch(in, spec, pod.SidecarContainer, current)
		return false
	}
	s.settle(in, spec, c)
	return true
}

// started says that what comes after a running sidecar need not wait for it any more:
// its postStart hook and its startup probe have succeeded. Whether it is ready, or
// live, does not matter.
func (s *Step) started(in *Input, spec *v1.Container, c *pod.Container) bool {
	if hook := in.PostStart[c.ID].State; hook == pod.HookRunning || hook == pod.HookFailed {
		return false
	}
	return spec.StartupProbe == nil || in.Probes.Of(spec.Name, c.ID).Startup == pod.ProbeSucceeded
}

// startEphemeral starts each ephemeral container once in its pod's life, even
// before the pod is initialized. One that never ran because its start was interrupted
// has not been started.
func (s *Step) startEphemeral(in *Input, current *pod.Sandbox) {
	for spec, k := range pod.ContainerSpecs(&in.Granted.Pod.Spec) {
		if k != pod.EphemeralContainer {
			continue
		}
		c := in.Observed.Latest(spec.Name)
		if c == nil || c.State == pod.ContainerCreated && c.SandboxID == current.ID || s.Memory.Killed[c.Name].ID == c.ID {
			s.launch(in, spec, pod.EphemeralContainer, current)
		}
	}
}
