package plan

import "podd/internal/pod"

// collect lists what is dead and superseded: of each container the newest dead
// one is kept (for its last state and `logs --previous`), of the sandboxes those
// that hold one, and the newest. With no current sandbox nothing is to start.
func (s *Step) collect(in *Input, current *pod.Sandbox) {
	if settled(in, current) {
		return
	}
	kept := make(map[string]bool)
	inUse := make(map[string]bool)
	if len(in.Observed.Sandboxes) > 0 {
		inUse[in.Observed.Sandboxes[0].ID] = true
	}
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		switch {
		case c.State == pod.ContainerCreated && (current == nil || c.SandboxID != current.ID || c != in.Observed.Latest(c.Name)):
			s.RemoveContainers = append(s.RemoveContainers, c.ID)
		case c.State != pod.ContainerExited:
			inUse[c.SandboxID] = true
		case !kept[c.Name]:
			kept[c.Name] = true
			inUse[c.SandboxID] = true
		default:
			s.RemoveContainers = append(s.RemoveContainers, c.ID)
		}
	}
	for i := range in.Observed.Sandboxes {
		if sb := &in.Observed.Sandboxes[i]; !sb.Ready && !inUse[sb.ID] {
			s.RemoveSandboxes = append(s.RemoveSandboxes, sb.ID)
		}
	}
}

// settled says without more ado that there is nothing to collect: one sandbox,
// and all that was ever made in it runs.
func settled(in *Input, current *pod.Sandbox) bool {
	if current == nil || len(in.Observed.Sandboxes) > 1 {
		return false
	}
	for i := range in.Observed.Containers {
		if in.Observed.Containers[i].State != pod.ContainerRunning {
			return false
		}
	}
	return true
}
