package cri

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// specFromAnnotations returns the part of a container's spec that its annotations hold: its
// preStop hook, the ports that the hook may name, and whether it is a sidecar. It is nil if
// they hold nothing that matters for the termination of a pod without manifest and spec, such
// as a kubelet's. A hook with a named port that cannot be read fails, and reports that.
func specFromAnnotations(name string, annotations map[string]string) *v1.Container {
	out := &v1.Container{Name: name}
	var preStop *v1.LifecycleHandler
	if raw := annotations[spec.AnnotationPreStop]; raw != "" && json.Unmarshal([]byte(raw), &preStop) != nil {
		preStop = nil
	}
	var ports []v1.ContainerPort
	if raw := annotations[spec.AnnotationPorts]; raw != "" && json.Unmarshal([]byte(raw), &ports) != nil {
		ports = nil
	}
	if preStop != nil {
		out.Lifecycle, out.Ports = &v1.Lifecycle{PreStop: preStop}, ports
	}
	if annotations[pod.AnnotationSidecar] == "true" {
		always := v1.ContainerRestartPolicyAlways
		out.RestartPolicy, out.Ports = &always, ports
	}
	if out.Lifecycle == nil && out.RestartPolicy == nil {
		return nil
	}
	return out
}
