package agent

import (
	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// noProbes stands for Config.Probes where nobody probes.
type noProbes struct{}

func (noProbes) Sync(*v1.Pod, string, []pod.ProbeTarget, bool) {}
func (noProbes) Results(pod.UID) pod.ProbeResults              { return nil }
func (noProbes) Forget(pod.UID)                                {}
func (noProbes) Retain(map[pod.UID]bool)                       {}

// probe tells the prober what may be probed now and returns what it knows.
func (w *worker) probe(d *pod.Desired, seen pod.Observed, hooks map[string]pod.Hook, terminating bool) pod.ProbeResults {
	if !pod.HasProbes(&d.Pod.Spec) {
		return nil
	}
	targets := plan.ProbeTargets(&d.Pod.Spec, seen, hooks)
	ip := ""
	if n := len(targets); n > 0 {
		ip = w.podIP(seen, targets[n-1].ContainerID)
	}
	w.agent.cfg.Probes.Sync(d.Pod, ip, targets, terminating)
	return w.agent.cfg.Probes.Results(w.uid)
}
