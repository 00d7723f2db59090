package agent

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// noProbes stands for Config.Probes where nobody probes.
type noProbes struct{}

func (noProbes) Sync(*v1.Pod, string, []pod.ProbeTarget, bool) {}
func (noProbes) Results(pod.UID) pod.ProbeResults              { return nil }
func (noProbes) Forget(pod.UID)                                {}

// probe tells the prober what runs now and returns what it knows. A container
// whose postStart hook is under way counts as not yet running, as in its status.
func (w *worker) probe(d *pod.Desired, seen pod.Observed, hooks map[string]pod.Hook, terminating bool) pod.ProbeResults {
	if !hasProbes(&d.Pod.Spec) {
		return nil
	}
	var targets []pod.ProbeTarget
	ip := ""
	for spec := range probed(&d.Pod.Spec) {
		c := seen.Latest(spec.Name)
		if c == nil || c.State != pod.ContainerRunning || hooks[c.ID].State == pod.HookRunning {
			continue
		}
		ip = w.podIP(seen, c.ID)
		targets = append(targets, pod.ProbeTarget{Container: spec, ContainerID: c.ID, StartedAt: c.StartedAt})
	}
	w.agent.cfg.Probes.Sync(d.Pod, ip, targets, terminating)
	return w.agent.cfg.Probes.Results(w.uid)
}

// probed iterates over the containers of a spec that may have probes.
func probed(spec *v1.PodSpec) func(yield func(*v1.Container) bool) {
	return func(yield func(*v1.Container) bool) {
		for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

func hasProbes(spec *v1.PodSpec) bool {
	has := func(c v1.Container) bool {
		return c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil
	}
	return slices.ContainsFunc(spec.InitContainers, has) || slices.ContainsFunc(spec.Containers, has)
}
