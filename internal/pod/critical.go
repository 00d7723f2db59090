package pod

import v1 "k8s.io/api/core/v1"

// SystemCriticalPriority is the lowest priority of the system's own classes
// (scheduling.SystemCriticalPriority).
const SystemCriticalPriority = 2_000_000_000

// IsStatic says that the pod comes from the node itself, not from an apiserver.
func IsStatic(p *v1.Pod) bool {
	source, ok := p.Annotations[AnnotationSource]
	return ok && source != string(SourceAPIServer)
}

// IsSystem says that the pod has one of the system's own priorities.
func IsSystem(p *v1.Pod) bool { return Priority(p) >= SystemCriticalPriority }

// Priority returns the pod's priority; 0 if it has none.
func Priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// IsCritical is the kubelet's IsCriticalPod: pods from the node itself, their mirror
// pods in an apiserver, and the system's own priorities.
func IsCritical(p *v1.Pod) bool {
	_, mirror := p.Annotations[v1.MirrorPodAnnotationKey]
	return IsStatic(p) || mirror || IsSystem(p)
}
