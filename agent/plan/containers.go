package plan

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// killStaleContainers stops containers that run outside the current sandbox, that the spec
// does not name, or that have a newer one of their name. It also stops a container in
// unknown state: it may be running, and a second one must not start beside it. It leaves
// ephemeral containers alone, because none of them is ever started twice.
func (s *Step) killStaleContainers(in *Input, current *pod.Sandbox) {
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		if !mayRun(c) {
			continue
		}
		spec, k := pod.ContainerSpec(&in.Granted.Pod.Spec, c.Name)
		switch {
		case c.State == pod.ContainerUnknown && k == pod.EphemeralContainer && c.SandboxID == current.ID:
		case c.State == pod.ContainerUnknown:
			what := "Container"
			if k == pod.InitContainer || k == pod.SidecarContainer {
				what = "Init container"
			}
			s.stop(in, c, fmt.Sprintf("%s is in %q state, try killing it before restart", what, c.State))
		case c.SandboxID != current.ID || spec == nil || c != in.Observed.LatestContainer(c.Name):
			s.stop(in, c, "Container "+c.Name+" is not part of the pod's sandbox")
		}
	}
}

// done says that a regular container has ended and is not started again.
func (s *Step) done(p *v1.Pod, spec *v1.Container, c *pod.Container) bool {
	if c.State != pod.ContainerExited {
		return false
	}
	return s.Memory.ForcedRestarts[spec.Name].ID != c.ID && !pod.ShouldRestart(&p.Spec, spec, c.ExitCode, !c.Succeeded(pod.RegularContainer))
}

// startRegular starts the regular containers that should run and do not. While a
// container's postStart hook runs, or if this step begins it, the containers after it
// wait. If the hook failed before, the container comes last, so that no other waits for
// it again.
func (s *Step) startRegular(in *Input, current *pod.Sandbox) {
	p := in.Granted.Pod
	held, first := false, len(s.Start)
	for i := range p.Spec.Containers {
		spec := &p.Spec.Containers[i]
		c := in.Observed.LatestContainer(spec.Name)
		switch {
		case c != nil && c.State == pod.ContainerRunning:
			s.clearFailures(in, spec, c)
			held = held || in.PostStart[c.ID].State == pod.HookRunning
		case c != nil && s.done(p, spec, c):
		case held:
		default:
			// One that could not start last time may take long, for instance because
			// of its image: the others do not wait for it.
			_, failed := s.Memory.Failures[spec.Name]
			launched := s.startIfDue(in, spec, pod.RegularContainer, current)
			held = launched && !failed && hasPostStart(spec)
		}
	}
	slices.SortStableFunc(s.Start[first:], func(a, b Start) int {
		return cmp.Compare(s.hookFailures(a.Container.Name), s.hookFailures(b.Container.Name))
	})
}

// hookFailures is 1 if a container's last postStart hook failed, else 0.
func (s *Step) hookFailures(name string) int {
	if s.Memory.Failures[name].Waiting.Reason == pod.ReasonPostStartHookError {
		return 1
	}
	return 0
}

// clearFailures forgets the failures of a container that runs.
func (s *Step) clearFailures(in *Input, spec *v1.Container, c *pod.Container) {
	if hook := in.PostStart[c.ID].State; hook != pod.HookRunning && hook != pod.HookFailed {
		s.Memory = s.Memory.Succeeded(spec.Name)
	}
}
