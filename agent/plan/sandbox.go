package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// sandboxPace is the shortest time from one sandbox of a pod to the next. A
// sandbox that lived longer is replaced at once; one that dies as it starts
// must not keep the runtime busy at the expense of other pods. One second is
// the pace at which the kubelet's relist would notice.
const sandboxPace = time.Second

// sandboxes returns the sandbox that containers belong into, if there is one,
// and those that must be stopped first. More than one ready sandbox, a dead
// newest one, or one without an address is beyond repair and replaced, as in
// upstream's PodSandboxChanged.
func sandboxes(in *Input) (current *pod.Sandbox, stop []string) {
	all := in.Observed.Sandboxes
	if len(all) == 0 {
		return nil, nil
	}
	ready := 0
	for i := range all {
		if all[i].Ready {
			ready++
		}
	}
	newest := &all[0]
	usable := newest.Ready && ready == 1 && (newest.HostNetwork || len(newest.IPs) > 0) &&
		newest.HostNetwork == in.Desired.Pod.Spec.HostNetwork
	if usable {
		return newest, nil
	}
	for i := range all {
		if all[i].Ready {
			stop = append(stop, all[i].ID)
		}
	}
	return nil, stop
}

// newSandbox asks for a sandbox if anything is still to run in it.
func (s *Step) newSandbox(in *Input) {
	if !wantsSandbox(in) {
		s.Finished = true
		return
	}
	s.waitAll(in)
	all := in.Observed.Sandboxes
	if len(all) > 0 {
		made := all[0].CreatedAt
		if due := made.Add(sandboxPace); !made.After(in.Now) && due.After(in.Now) {
			s.wakeAt(due)
			return
		}
		s.Attempt = all[0].Attempt + 1
		s.SandboxChanged = true
	}
	s.CreateSandbox = true
	s.Attempt = uint32(in.Memory.attempt("", int64(s.Attempt), in.Now))
	for i := range all {
		s.ReleaseSandboxes = append(s.ReleaseSandboxes, all[i].ID)
	}
}

// wantsSandbox says whether any container is still to run. A pod that never
// restarts does not begin again in another sandbox once one of its containers
// was started.
func wantsSandbox(in *Input) bool {
	began := slices.ContainsFunc(in.Observed.Containers, func(c pod.Container) bool { return c.State != pod.ContainerCreated })
	if !began {
		return true
	}
	if in.Desired.Pod.Spec.RestartPolicy == v1.RestartPolicyNever {
		return false
	}
	for i := range in.Desired.Pod.Spec.Containers {
		c := in.Observed.Latest(in.Desired.Pod.Spec.Containers[i].Name)
		if c == nil || !done(in.Desired.Pod, c) {
			return true
		}
	}
	return false
}

// stopSandbox stops a sandbox and, before it, the containers that run in it.
func (s *Step) stopSandbox(in *Input, id, message string) {
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		if c.SandboxID == id && mayRun(c) {
			s.stop(in, c, message)
		}
	}
	s.StopSandboxes = append(s.StopSandboxes, id)
}
