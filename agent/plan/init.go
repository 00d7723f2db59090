package plan

import (
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// initialize starts what is next among the init containers of the current
// sandbox, keeps its sidecars running, and says whether the regular containers
// may start.
//
// The last init container that was created in the sandbox shows its progress: those
// before it have completed, whether or not their records still exist (upstream's
// computeInitContainerActions). If a regular container was created, all have
// completed. Unlike upstream, podd does not count the containers of an earlier
// sandbox.
func (s *Step) initialize(in *Input, current *pod.Sandbox) (completed bool) {
	inits := in.Granted.Pod.Spec.InitContainers
	last := len(inits)
	completed = in.Observed.Initialized(&in.Granted.Pod.Spec, current.ID)
	for !completed && last > 0 {
		if last--; madeIn(in, &inits[last], current) != nil {
			break
		}
	}
	for i := range inits[:last] {
		if pod.IsSidecar(&inits[i]) {
			s.keep(in, &inits[i], current)
		}
	}
	for i := last; i < len(inits); i++ {
		if !s.pass(in, &inits[i], current) {
			return false
		}
	}
	return true
}

// madeIn returns the newest container of a spec if it is in this sandbox, or
// nil.
func madeIn(in *Input, spec *v1.Container, current *pod.Sandbox) *pod.Container {
	if c := in.Observed.Latest(spec.Name); c != nil && c.SandboxID == current.ID {
		return c
	}
	return nil
}

// pass says whether what comes after an init container may start, and starts the init
// container if it is its turn.
func (s *Step) pass(in *Input, spec *v1.Container, current *pod.Sandbox) bool {
	c := madeIn(in, spec, current)
	if pod.IsSidecar(spec) {
		return s.keep(in, spec, current) && s.started(in, spec, c)
	}
	switch {
	case c != nil && c.State == pod.ContainerRunning:
		s.Memory = s.Memory.Succeeded(spec.Name)
		return false
	case c != nil && c.Succeeded(pod.InitContainer):
		return true
	default: // one that failed for good has ended the pod
		s.launch(in, spec, pod.InitContainer, current)
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
		c := in.Observed.Latest(spec.Name)
		if c != nil && c.State == pod.ContainerExited && !c.Succeeded(pod.InitContainer) &&
			s.Memory.Killed[c.Name].ID != c.ID && !pod.ShouldRestart(&p.Spec, spec, c.ExitCode, true) {
			return true
		}
	}
	return false
}
