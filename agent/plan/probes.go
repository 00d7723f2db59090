package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// ProbeTargets are the containers that may be probed: those that run, unless their
// postStart hook is in progress (hooks are by container ID). Such a container counts as not yet
// running, as in its status. Ephemeral containers have no probes.
func ProbeTargets(spec *v1.PodSpec, seen pod.Observed, hooks map[string]pod.Hook) []pod.ProbeTarget {
	var targets []pod.ProbeTarget
	for c, kind := range pod.ContainerSpecs(spec) {
		latest := seen.LatestContainer(c.Name)
		if kind == pod.EphemeralContainer || latest == nil || latest.State != pod.ContainerRunning || hooks[latest.ID].State == pod.HookRunning {
			continue
		}
		targets = append(targets, pod.ProbeTarget{Container: c, ContainerID: latest.ID, StartedAt: latest.StartedAt})
	}
	return targets
}

// stopFailing stops running containers that must not continue: their postStart hook
// or a liveness or startup probe failed, or their spec names another image. Of init
// containers, this only applies to sidecars.
func (s *Step) stopFailing(in *Input, current *pod.Sandbox) {
	for spec, k := range pod.ContainerSpecs(&in.Granted.Pod.Spec) {
		if k != pod.RegularContainer && k != pod.SidecarContainer {
			continue
		}
		c := latestIn(in, spec, current)
		if c == nil || c.State != pod.ContainerRunning {
			continue
		}
		if hook := in.PostStart[c.ID]; hook.State == pod.HookFailed {
			s.stop(in, c, "FailedPostStartHook")
			s.hookFailed(spec.Name, c.ID, hook, in.Now)
			continue
		}
		if f := s.failing(in, runningContainer{c, spec, k}); f.why != "" {
			s.stopToRestart(in, f)
		}
	}
}

// hookFailed remembers, once for each container, why it will wait.
func (s *Step) hookFailed(name, id string, hook pod.Hook, now time.Time) {
	if f := s.Memory.Failures[name]; f.ID != id || f.Waiting.Reason != pod.ReasonPostStartHookError {
		s.Memory = s.Memory.Failed(name, id, pod.Waiting{Reason: pod.ReasonPostStartHookError, Message: hook.Message}, now)
	}
}

// runningContainer is a running container, and what it is in its pod.
type runningContainer struct {
	*pod.Container
	spec *v1.Container
	kind pod.ContainerKind
}

// restartCause is why a running container has to be stopped, in the kubelet's words, and
// the probe that failed; empty and nil if it may continue.
type restartCause struct {
	runningContainer
	why   string
	probe *v1.Probe
}

// failing determines why a running container has to be stopped. The order among the
// causes is upstream's, which differs for sidecars.
func (s *Step) failing(in *Input, c runningContainer) restartCause {
	results := in.Probes.ForContainer(c.Name, c.ID)
	changed := c.Hash != "" && c.Hash != s.Memory.hashes[c.Name]
	switch {
	case c.kind == pod.SidecarContainer && results.Startup == pod.ProbeFailed:
		return restartCause{c, "failed startup probe", c.spec.StartupProbe}
	case changed:
		return restartCause{c, "definition changed", nil}
	case results.Live == pod.ProbeFailed:
		return restartCause{c, "failed liveness probe", c.spec.LivenessProbe}
	case results.Startup == pod.ProbeFailed:
		return restartCause{c, "failed startup probe", c.spec.StartupProbe}
	}
	return restartCause{}
}

// stopToRestart stops a container to restart it, whatever its exit code will be.
// Restart rules are about exit codes and do not apply here; policy Never does, except
// for a changed spec.
//
// In the kubelet, the back-off after such a stop counts from the previous end, and a
// first one does not count: a container that ran well for long is restarted at once.
// Here it depends on how long the container itself ran.
func (s *Step) stopToRestart(in *Input, f restartCause) {
	message := "Container " + f.Name + " " + f.why
	restart := f.probe == nil || f.kind == pod.SidecarContainer || !never(in.Granted.Pod, f.spec)
	switch {
	case f.kind == pod.SidecarContainer:
		message = "Init container " + f.Name + " " + f.why
	case restart:
		message += ", will be restarted"
	}
	within := grace(in, f.Container)
	if f.probe != nil && in.Granted.Pod.DeletionGracePeriodSeconds == nil && f.probe.TerminationGracePeriodSeconds != nil {
		within = pod.GracePeriod(*f.probe.TerminationGracePeriodSeconds)
	}
	s.stopWithin(in, f.Container, within, message).Probe = f.probe != nil
	if restart && s.Memory.ForcedRestarts[f.Name].ID != f.ID {
		s.Memory.ForcedRestarts = with(s.Memory.ForcedRestarts, f.Name, ForcedRestart{ID: f.ID, SkipBackOff: f.RestartCount == 0})
	}
}

// probeEndsPod says that a failed probe ends the last regular container and that none
// is restarted: then the whole pod ends, as upstream, with the pod's grace period.
func (s *Step) probeEndsPod(in *Input) bool {
	if !slices.ContainsFunc(s.Stop, func(st Stop) bool { return st.Probe }) {
		return false
	}
	p := in.Granted.Pod
	for i := range p.Spec.Containers {
		spec := &p.Spec.Containers[i]
		c := in.Observed.LatestContainer(spec.Name)
		if c == nil {
			return false
		}
		ends := slices.ContainsFunc(s.Stop, func(st Stop) bool {
			return st.ID == c.ID && st.Probe && s.Memory.ForcedRestarts[spec.Name].ID != c.ID
		})
		if !ends && !s.done(p, spec, c) {
			return false
		}
	}
	return true
}

// never says that the policy of a container, or else of its pod, is Never.
func never(p *v1.Pod, spec *v1.Container) bool {
	if spec.RestartPolicy != nil {
		return *spec.RestartPolicy == v1.ContainerRestartPolicyNever
	}
	return p.Spec.RestartPolicy == v1.RestartPolicyNever
}
