package plan

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// stopStrangers stops what runs outside the current sandbox, what the spec
// does not name, what has a newer one of its name, and what is in an unknown
// state: it may be running, and a second one must not start beside it.
func (s *Step) stopStrangers(in *Input, current *pod.Sandbox) {
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		stray := current == nil || c.SandboxID != current.ID ||
			specOf(in.Desired.Pod, c.Name) == nil || c != in.Observed.Latest(c.Name)
		switch {
		case c.State == pod.ContainerRunning && stray:
			s.stop(in, c, "Container "+c.Name+" is not part of the pod's sandbox")
		case c.State == pod.ContainerUnknown:
			s.stop(in, c, fmt.Sprintf("Container is in %q state, try killing it before restart", c.State))
		}
	}
}

// done says that a container has ended and its restart policy leaves it so.
func done(p *v1.Pod, c *pod.Container) bool {
	if c.State != pod.ContainerExited {
		return false
	}
	switch p.Spec.RestartPolicy {
	case v1.RestartPolicyNever:
		return true
	case v1.RestartPolicyOnFailure:
		return c.ExitCode == 0
	default:
		return false
	}
}

// containers starts what should run in the current sandbox, and lets the
// sandbox go when nothing will ever run in it again.
func (s *Step) containers(in *Input, current *pod.Sandbox) {
	p := in.Desired.Pod
	alive := 0
	for i := range p.Spec.Containers {
		spec := &p.Spec.Containers[i]
		seen := in.Observed.Latest(spec.Name)
		switch {
		case seen == nil:
			alive++
			s.start(in, Start{Container: spec})
		case seen.State == pod.ContainerRunning:
			alive++
			s.Memory = s.Memory.Succeeded(spec.Name)
		case seen.State == pod.ContainerCreated && seen.SandboxID == current.ID:
			alive++
			s.start(in, Start{Container: spec, ID: seen.ID, RestartCount: seen.RestartCount})
		case done(p, seen):
		default:
			alive++
			s.restart(in, spec, seen, current)
		}
	}
	if alive == 0 {
		s.stopSandbox(in, current.ID, "Pod has run to its end")
	}
}

// restart starts the successor of a container that ended, now or when its
// back-off is over. Of one that was made for an earlier sandbox and never ran,
// it starts the successor at once: its start may have failed because that
// sandbox was dying.
func (s *Step) restart(in *Input, spec *v1.Container, seen *pod.Container, current *pod.Sandbox) {
	st := Start{Container: spec, RestartCount: seen.RestartCount + 1}
	if in.Memory.Failures[spec.Name].ID == seen.ID {
		s.Memory = s.Memory.Succeeded(spec.Name)
	}
	neverRan := seen.State == pod.ContainerExited && seen.StartedAt.IsZero() && seen.SandboxID != current.ID
	if seen.State != pod.ContainerExited || neverRan {
		s.start(in, st)
		return
	}
	entry, ended := in.Memory.Restarts[spec.Name], endOf(seen)
	if until := in.Policy.Until(entry, ended); until.After(in.Now) {
		s.wait(spec.Name, pod.Waiting{
			Reason: ReasonCrashLoopBackOff,
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				entry.Delay, spec.Name, in.Desired.Pod.Name, in.Desired.Pod.Namespace, in.Desired.Pod.UID),
		})
		s.BackOff = append(s.BackOff, spec.Name)
		s.wakeAt(until)
		return
	}
	if s.start(in, st) {
		s.remember(spec.Name, in.Policy.Restart(entry, ended, in.Now))
	}
}

// endOf is when a container ended, or the best guess where the runtime lost
// the record; it is never the same for two containers.
func endOf(c *pod.Container) time.Time {
	for _, t := range []time.Time{c.FinishedAt, c.StartedAt} {
		if !t.IsZero() {
			return t
		}
	}
	return c.CreatedAt
}

// start puts a container on the list unless its last try failed just now.
func (s *Step) start(in *Input, st Start) bool {
	name := st.Container.Name
	if f, failed := s.Memory.Failures[name]; failed {
		s.wait(name, f.Waiting)
		if f.NotBefore.After(in.Now) {
			s.wakeAt(f.NotBefore)
			return false
		}
	} else {
		s.wait(name, pod.Waiting{Reason: ReasonContainerCreating})
	}
	if st.ID == "" {
		st.RestartCount = int32(in.Memory.attempt(name, int64(st.RestartCount), in.Now))
	}
	s.Start = append(s.Start, st)
	return true
}

// collect lists what is dead and superseded: of each container the newest dead
// one is kept (for its last state and `logs --previous`), of the sandboxes the
// newest.
func (s *Step) collect(in *Input, current *pod.Sandbox) {
	kept := make(map[string]bool)
	inUse := map[string]bool{current.ID: true}
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		switch {
		case c.State == pod.ContainerCreated && (c.SandboxID != current.ID || c != in.Observed.Latest(c.Name)):
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

func specOf(p *v1.Pod, name string) *v1.Container {
	i := slices.IndexFunc(p.Spec.Containers, func(c v1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Spec.Containers[i]
}
