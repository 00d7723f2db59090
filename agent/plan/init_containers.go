package plan

import (
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// startInitContainers starts what is next among the init containers of the current
// sandbox, keeps its sidecars running, and says whether the regular containers
// may start.
//
// The last init container that was created in the sandbox shows its progress: those
// before it have completed, whether or not their records still exist (upstream's
// computeInitContainerActions). If a regular container was created, all have
// completed. Unlike upstream, podd does not count the containers of an earlier
// sandbox.
func (s *Step) startInitContainers(in *Input, current *pod.Sandbox) (completed bool) {
	inits := in.Granted.Pod.Spec.InitContainers
	last := len(inits)
	completed = in.Observed.InitContainersDone(&in.Granted.Pod.Spec, current.ID)
	for !completed && last > 0 {
		if last--; latestIn(in, &inits[last], current) != nil {
			break
		}
	}
	for i := range inits[:last] {
		if pod.IsSidecar(&inits[i]) {
			s.ensureSidecar(in, &inits[i], current)
		}
	}
	for i := last; i < len(inits); i++ {
		if !s.advanceInit(in, &inits[i], current) {
			return false
		}
	}
	return true
}

// latestIn returns the newest container of a spec if it is in this sandbox, or
// nil.
func latestIn(in *Input, spec *v1.Container, current *pod.Sandbox) *pod.Container {
	if c := in.Observed.LatestContainer(spec.Name); c != nil && c.SandboxID == current.ID {
		return c
	}
	return nil
}

// advanceInit says whether what comes after an init container may start, and starts the
// init container if it is its turn.
func (s *Step) advanceInit(in *Input, spec *v1.Container, current *pod.Sandbox) bool {
	c := latestIn(in, spec, current)
	if pod.IsSidecar(spec) {
		return s.ensureSidecar(in, spec, current) && s.sidecarStarted(in, spec, c)
	}
	switch {
	case c != nil && c.State == pod.ContainerRunning:
		s.Memory = s.Memory.Succeeded(spec.Name)
		return false
	case c != nil && c.Succeeded(pod.InitContainer):
		return true
	default: // one that failed for good has ended the pod
		s.startIfDue(in, spec, pod.InitContainer, current)
		return false
	}
}

// initFailed says that an init container failed and is not restarted, which is the
// end of its pod.
func (s *Step) initFailed(in *Input) bool {
	p := in.Granted.Pod
	for i := range p.Spec.InitContainers {
		spec := &p.Spec.InitContainers[i]
		if pod.IsSidecar(spec) {
			continue
		}
		c := in.Observed.LatestContainer(spec.Name)
		if c != nil && c.State == pod.ContainerExited && !c.Succeeded(pod.InitContainer) &&
			s.Memory.ForcedRestarts[c.Name].ID != c.ID && !pod.ShouldRestart(&p.Spec, spec, c.ExitCode, true) {
			return true
		}
	}
	return false
}
