package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/backoff"
	"podd/internal/pod"
)

const messageRestartingAll = "The container is removed because RestartAllContainers in place"

// restartAllSources are the containers that requested a restart of all by how they ended
// (KEP-5532), by ID; completed says that the pod has completed instead. A sidecar that ends
// after all regular containers are done has no effect.
func (s *Step) restartAllSources(in *Input) (sources []string, completed bool) {
	p := in.Granted.Pod
	completed, last := s.regularDone(in)
	for spec, k := range pod.ContainerSpecs(&p.Spec) {
		if len(spec.RestartPolicyRules) == 0 || k == pod.EphemeralContainer {
			continue
		}
		c := in.Observed.LatestContainer(spec.Name)
		if c == nil || c.State != pod.ContainerExited || completed && !s.Memory.Times[c.Name].FinishedAt.Before(last) {
			continue
		}
		if pod.RestartRuleAction(spec, c.ExitCode) == v1.ContainerRestartRuleActionRestartAllContainers {
			sources = append(sources, c.ID)
		}
	}
	return sources, len(sources) == 0 && (completed || s.initFailed(in))
}

// regularDone says that every regular container is done, and when the last was.
func (s *Step) regularDone(in *Input) (done bool, last time.Time) {
	p := in.Granted.Pod
	for i := range p.Spec.Containers {
		spec := &p.Spec.Containers[i]
		c := in.Observed.LatestContainer(spec.Name)
		if c == nil || !s.done(p, spec, c) {
			return false, time.Time{}
		}
		if end := s.Memory.Times[spec.Name].FinishedAt; end.After(last) {
			last = end
		}
	}
	return len(p.Spec.Containers) > 0, last
}

// restartAll restarts everything in the same sandbox. It stops all containers and removes
// them; those that requested the restart are removed last. A podd that was restarted
// meanwhile sees the progress from what the runtime still has. The logs stay, as in the
// kubelet's removeContainer: they are the only record of these ends.
func (s *Step) restartAll(in *Input, sources []string) {
	s.RestartingAll, s.KeepLogs = true, true
	var others []string
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		spec, k := pod.ContainerSpec(&in.Granted.Pod.Spec, c.Name)
		if spec == nil || k == pod.EphemeralContainer {
			continue
		}
		if mayRun(c) {
			// No grace period of their own, but the least one after every stop
			// signal.
			s.stopWithin(in, c, minimumGrace, "killing").PreStop = nil
		}
		if !slices.Contains(sources, c.ID) {
			others = append(others, c.ID)
		}
	}
	s.orderStops(in)
	switch {
	case len(s.Stop) > 0:
	case len(others) > 0:
		s.RemoveContainers = others
	default:
		s.RemoveContainers = sources
		s.rememberEnds(in, sources)
	}
	s.waitForRestart(in)
}

// waitForRestart sets the waiting reason of those that are removed already.
func (s *Step) waitForRestart(in *Input) {
	for spec, k := range pod.ContainerSpecs(&in.Granted.Pod.Spec) {
		if c := in.Observed.LatestContainer(spec.Name); k != pod.EphemeralContainer && c == nil {
			s.setWaiting(spec.Name, pod.Waiting{Reason: pod.ReasonRestartingAllContainers, Message: messageRestartingAll})
		}
	}
}

// rememberEnds keeps the ends of containers that are removed, so that their restarts
// have the same back-off as after a crash. In the kubelet they have none, and a pod
// that requests a restart of all as it starts keeps its node busy.
func (s *Step) rememberEnds(in *Input, ids []string) {
	ends := make(map[string]backoff.Exit, len(ids))
	for i := range in.Observed.Containers {
		if c := &in.Observed.Containers[i]; slices.Contains(ids, c.ID) {
			_, k := pod.ContainerSpec(&in.Granted.Pod.Spec, c.Name)
			ends[c.Name] = backoff.Exit{At: s.Memory.Times[c.Name].FinishedAt, Success: c.Succeeded(k)}
		}
	}
	s.Memory.RemovedExits = ends
}
