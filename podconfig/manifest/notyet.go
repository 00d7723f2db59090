package manifest

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// unhonoured is a field that is valid Kubernetes and that podd would ignore.
// Ignoring it in silence would run another pod than the one that was written,
// so it is refused, until podd honours it and its row goes.
type unhonoured struct{ path, message, hint string }

const leaveOut = "remove it for now, or wait for the version of podd that has it"

// podFields are the unhonoured fields of a pod: where, what to call it, and
// whether the pod uses it.
var podFields = []struct {
	path, what string
	used       func(*v1.PodSpec) bool
}{
	{"spec.initContainers", "init containers and sidecars", func(s *v1.PodSpec) bool { return len(s.InitContainers) > 0 }},
	{"spec.ephemeralContainers", "ephemeral containers", func(s *v1.PodSpec) bool { return len(s.EphemeralContainers) > 0 }},
	{"spec.activeDeadlineSeconds", "a pod's deadline", func(s *v1.PodSpec) bool { return s.ActiveDeadlineSeconds != nil }},
	{"spec.hostUsers", "a user namespace of the pod's own", func(s *v1.PodSpec) bool { return s.HostUsers != nil && !*s.HostUsers }},
	{"spec.resourceClaims", "resource claims", func(s *v1.PodSpec) bool { return len(s.ResourceClaims) > 0 }},
	{"spec.readinessGates", "readiness gates", func(s *v1.PodSpec) bool { return len(s.ReadinessGates) > 0 }},
	{"spec.runtimeClassName", "runtime classes", func(s *v1.PodSpec) bool { return s.RuntimeClassName != nil }},
	{"spec.overhead", "the overhead of a runtime class", func(s *v1.PodSpec) bool { return len(s.Overhead) > 0 }},
	{"spec.resources", "resources of the whole pod", func(s *v1.PodSpec) bool {
		return s.Resources != nil && len(s.Resources.Limits)+len(s.Resources.Requests) > 0
	}},
}

// containerFields are the same for containers; path is relative to them.
var containerFields = []struct {
	path, what string
	used       func(*v1.Container) bool
}{
	{"livenessProbe", "probes", func(c *v1.Container) bool { return c.LivenessProbe != nil }},
	{"readinessProbe", "probes", func(c *v1.Container) bool { return c.ReadinessProbe != nil }},
	{"startupProbe", "probes", func(c *v1.Container) bool { return c.StartupProbe != nil }},
	{"lifecycle", "hooks and stop signals", func(c *v1.Container) bool { return c.Lifecycle != nil }},
	{"restartPolicy", "a container's own restart policy", func(c *v1.Container) bool { return c.RestartPolicy != nil }},
	{"restartPolicyRules", "restart rules", func(c *v1.Container) bool { return len(c.RestartPolicyRules) > 0 }},
	{"volumeDevices", "block devices as volumes", func(c *v1.Container) bool { return len(c.VolumeDevices) > 0 }},
	{"resources.claims", "resource claims", func(c *v1.Container) bool { return len(c.Resources.Claims) > 0 }},
}

// notYet names every field of a defaulted pod that podd would not honour.
func notYet(p *v1.Pod) []unhonoured {
	var out []unhonoured
	refuse := func(path, what, hint string) {
		out = append(out, unhonoured{path, "podd does not honour " + what + " yet", hint})
	}
	for _, f := range podFields {
		if f.used(&p.Spec) {
			refuse(f.path, f.what, leaveOut)
		}
	}
	for i := range p.Spec.Containers {
		c, path := &p.Spec.Containers[i], fmt.Sprintf("spec.containers[%d]", i)
		for _, f := range containerFields {
			if f.used(c) {
				refuse(path+"."+f.path, f.what, leaveOut)
			}
		}
		for j, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil {
				refuse(fmt.Sprintf("%s.env[%d].valueFrom.fileKeyRef", path, j), "variables from a file", leaveOut)
			}
		}
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		path := fmt.Sprintf("spec.volumes[%d]", i)
		switch {
		case v.EmptyDir != nil && v.EmptyDir.Medium != "" && v.EmptyDir.Medium != v1.StorageMediumMemory && !strings.HasPrefix(string(v.EmptyDir.Medium), string(v1.StorageMediumHugePages)):
			refuse(path+".emptyDir.medium", fmt.Sprintf("emptyDir on %s", v.EmptyDir.Medium), `use medium: Memory, or leave it out for the node's disk`)
		case v.HostPath == nil && v.EmptyDir == nil:
			refuse(path, "volumes other than hostPath and emptyDir", "mount it on the node and use a hostPath volume, or wait for the version of podd that has it")
		}
	}
	if p.Spec.OS != nil && p.Spec.OS.Name != v1.Linux {
		out = append(out, unhonoured{"spec.os.name", fmt.Sprintf("podd runs on Linux, and this pod is for %s", p.Spec.OS.Name), "remove spec.os, or run the pod on a node of that system"})
	}
	return out
}
