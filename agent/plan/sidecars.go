package plan

import (
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// ensureSidecar (re)starts a sidecar that does not run, whatever the pod's restart policy
// is, and says whether it runs.
func (s *Step) ensureSidecar(in *Input, spec *v1.Container, current *pod.Sandbox) bool {
	c := latestIn(in, spec, current)
	if c == nil || c.State != pod.ContainerRunning {
		s.startIfDue(in, spec, pod.SidecarContainer, current)
		return false
	}
	s.clearFailures(in, spec, c)
	return true
}

// sidecarStarted says that what comes after a running sidecar need not wait for it any
// more: its postStart hook and its startup probe have succeeded. Whether it is ready, or
// live, does not matter.
func (s *Step) sidecarStarted(in *Input, spec *v1.Container, c *pod.Container) bool {
	if hook := in.PostStart[c.ID].State; hook == pod.HookRunning || hook == pod.HookFailed {
		return false
	}
	return spec.StartupProbe == nil || in.Probes.ForContainer(spec.Name, c.ID).Startup == pod.ProbeSucceeded
}

// startEphemeral starts each ephemeral container once in its pod's life, even
// before the pod is initialized. One that never ran because its start was interrupted
// has not been started.
func (s *Step) startEphemeral(in *Input, current *pod.Sandbox) {
	for spec, k := range pod.ContainerSpecs(&in.Granted.Pod.Spec) {
		if k != pod.EphemeralContainer {
			continue
		}
		c := in.Observed.LatestContainer(spec.Name)
		if c == nil || c.State == pod.ContainerCreated && c.SandboxID == current.ID || s.Memory.ForcedRestarts[c.Name].ID == c.ID {
			s.startIfDue(in, spec, pod.EphemeralContainer, current)
		}
	}
}
