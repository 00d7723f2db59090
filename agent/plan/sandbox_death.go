package plan

import (
	"time"

	"podd/internal/pod"
)

// sandboxDeathTime is how long a runtime takes, on a machine that is not overloaded, to stop
// a sandbox behind podd's back: from killing its containers to reporting it as
// dead, and from there to the teardown of its network.
const sandboxDeathTime = 300 * time.Millisecond

// containerDeathWindow is until when a container's exit may mean the end of its sandbox,
// too; zero for never. It was killed, neither by podd nor for memory: its sandbox may
// be next, and two teardowns of one network conflict. Its successor is started
// all the same: far more often only the container was killed, and it must be back
// as fast as one that crashed.
func (s *Step) containerDeathWindow(in *Input, c *pod.Container, current *pod.Sandbox) time.Time {
	if c == nil || current == nil || c.State != pod.ContainerExited || c.SandboxID != current.ID || c.ExitCode != 128+9 ||
		c.OOMKilled() || s.Memory.ForcedRestarts[c.Name].ID == c.ID || s.Memory.Failures[c.Name].ID == c.ID ||
		c.FinishedAt.After(in.Now) {
		return time.Time{}
	}
	return pod.WithMonotonic(c.FinishedAt, in.Now).Add(sandboxDeathTime)
}

// sandboxDeathWindow is the same for all containers of a sandbox, which are killed one
// after the other.
func (s *Step) sandboxDeathWindow(in *Input, current *pod.Sandbox) time.Time {
	var until time.Time
	for i := range in.Observed.Containers {
		if t := s.containerDeathWindow(in, &in.Observed.Containers[i], current); t.After(until) {
			until = t
		}
	}
	return until
}
