package agent

import (
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
	if !pod.HasProbes(&d.Pod.Spec) {
		return nil
	}
	var targets []pod.ProbeTarget
	ip := ""
	for spec, kind := range pod.ContainerSpecs(&d.Pod.Spec) {
		if kind == pod.EphemeralContainer {
			break // has no probes
		}
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
