package plan

import (
	"slices"
	"time"

	"podd/internal/pod"
)

// RestartRequested returns the memory after somebody requested a restart of all containers. They
// restart at once and in order, as after a change of an object. A pod that has completed stays so.
func (m Memory) RestartRequested(now time.Time) Memory {
	m.ObjectChange = &ObjectChange{Requested: true, First: now, Last: now}
	return m
}

// ContainerRestartRequested returns the memory after somebody requested a restart of one container.
// It restarts at once, whatever its restart policy is, unless it has ended meanwhile.
func (m Memory) ContainerRestartRequested(c *pod.Container) Memory {
	m.RequestedRestarts = with(m.RequestedRestarts, c.Name, c.ID)
	return m
}

// restartRequested stops the containers that are to be restarted on request.
func (s *Step) restartRequested(in *Input) {
	for name, id := range s.Memory.RequestedRestarts {
		c := in.Observed.LatestContainer(name)
		if spec, _ := pod.ContainerSpec(&in.Granted.Pod.Spec, name); spec == nil || c == nil || c.ID != id || !mayRun(c) {
			s.Memory.RequestedRestarts = without(s.Memory.RequestedRestarts, name)
			continue
		}
		if !slices.ContainsFunc(s.Stop, func(st Stop) bool { return st.ID == id }) {
			s.stop(in, c, "Stopping container "+name+" to restart it: that was requested")
		}
		s.Memory.ForcedRestarts = with(s.Memory.ForcedRestarts, name, ForcedRestart{ID: id, SkipBackOff: true})
	}
}
