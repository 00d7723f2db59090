package plan

import "podd/internal/pod"

// collect lists what is dead and superseded: of each container the newest dead
// one is kept (for its last state and `logs --previous`), of the sandboxes those
// that hold one, and the newest. With no current sandbox nothing is to start.
func (s *Step) collect(in *Input, current *pod.Sandbox) {
	if tidy(in, current) {
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

// tidy says without more ado that there is nothing to collect, as in most looks:
// one sandbox, and of each container one that runs or one that is dead.
func tidy(in *Input, current *pod.Sandbox) bool {
	all := in.Observed.Containers
	if current == nil || len(in.Observed.Sandboxes) > 1 || len(all) > 32 {
		return false
	}
	for i := range all {
		if all[i].State == pod.ContainerCreated {
			return false
		}
		for j := range all[:i] {
			if all[i].Name == all[j].Name && all[i].State == pod.ContainerExited && all[j].State == pod.ContainerExited {
				return false
			}
		}
	}
	return true
}
