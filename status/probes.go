package status

import (
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// hasProbes says that a probe affects the pod's readiness.
func (c *computation) hasProbes() bool {
	for spec := range pod.ContainerSpecs(&c.pod.Spec) {
		if spec.ReadinessProbe != nil || spec.StartupProbe != nil {
			return true
		}
	}
	return false
}

// runtimeID is the ID of the newest container of that name, as the prober
// knows it: without the runtime's name.
func (c *computation) runtimeID(name string) string {
	if latest := c.report.Observed.LatestContainer(name); latest != nil {
		return latest.ID
	}
	return ""
}

// setProbeResults sets started and ready of every container.
func (c *computation) setProbeResults(s *v1.PodStatus) {
	for i := range s.ContainerStatuses {
		cs := &s.ContainerStatuses[i]
		c.setContainerProbeResults(c.pod.Spec.Containers, cs, pod.FindContainerStatus(c.previous.ContainerStatuses, cs.Name))
	}
	for i := range s.InitContainerStatuses {
		cs := &s.InitContainerStatuses[i]
		if pod.IsSidecar(&c.pod.Spec.InitContainers[i]) {
			c.setContainerProbeResults(c.pod.Spec.InitContainers, cs, pod.FindContainerStatus(c.previous.InitContainerStatuses, cs.Name))
			continue
		}
		started := cs.State.Running != nil
		cs.Started = &started
		cs.Ready = completed(cs.State.Terminated)
	}
}

// setContainerProbeResults sets started and ready of a container that may have probes.
// While a probe has no result yet, the same container keeps its earlier values, so that a
// restart of podd flaps nothing (kubernetes/kubernetes#100277).
func (c *computation) setContainerProbeResults(specs []v1.Container, cs, old *v1.ContainerStatus) {
	started, ready := false, false
	if cs.State.Running != nil {
		spec := specOf(specs, cs.Name)
		results := c.report.Probes.ForContainer(cs.Name, c.runtimeID(cs.Name))
		same := old != nil && old.ContainerID == cs.ContainerID
		started = c.passed(spec.StartupProbe, results.Startup, same && old.Started != nil && *old.Started)
		ready = started && c.passed(spec.ReadinessProbe, results.Ready, same && old.Ready)
	}
	cs.Started, cs.Ready = &started, ready
}

func (c *computation) passed(probe *v1.Probe, result pod.ProbeResult, before bool) bool {
	switch {
	case probe == nil:
		return true
	case result == pod.ProbeUnknown:
		return before
	}
	return result == pod.ProbeSucceeded
}

func specOf(specs []v1.Container, name string) *v1.Container {
	for i := range specs {
		if specs[i].Name == name {
			return &specs[i]
		}
	}
	return nil
}
