package plan

import "podd/internal/pod"

// collect lists what is dead and superseded: of each container the newest dead
// one is kept (for its last state and `logs --previous`), of the sandboxes those
// that hold one, and the newest. With no current sandbox nothing is to start.
func (s *Step) collect(in *Input, current *pod.Sandbox) {
	if nothingToCollect(in, current) {
		return
	}
	kept := newestDead(in)
	inUse := make(map[string]bool)
	if len(in.Observed.Sandboxes) > 0 {
		inUse[in.Observed.Sandboxes[0].ID] = true
	}
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		switch {
		case c.State == pod.ContainerCreated && (current == nil || c.SandboxID != current.ID || c != in.Observed.LatestContainer(c.Name)):
			s.RemoveContainers = append(s.RemoveContainers, c.ID)
		case c.State != pod.ContainerExited:
			inUse[c.SandboxID] = true
		case kept[c.Name] == c:
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

// newestDead are the dead containers with the highest attempt of their name. The
// times at which they were made say nothing: the clock may have been set.
func newestDead(in *Input) map[string]*pod.Container {
	newest := make(map[string]*pod.Container)
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		if best := newest[c.Name]; c.State == pod.ContainerExited && (best == nil || c.RestartCount > best.RestartCount) {
			newest[c.Name] = c
		}
	}
	return newest
}

// nothingToCollect is a cheap check for most syncs: the pod has one sandbox, and of each
// container one that runs or one that is dead.
func nothingToCollect(in *Input, current *pod.Sandbox) bool {
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
