package pod

import v1 "k8s.io/api/core/v1"

// criticalPriority is where the priorities of the system's own classes begin.
const criticalPriority = 2_000_000_000

// IsStatic says that the pod comes from the node itself, not from an apiserver.
func IsStatic(p *v1.Pod) bool {
	source, ok := p.Annotations[AnnotationSource]
	return ok && source != string(SourceAPIServer)
}

// IsSystem says that the pod has one of the system's own priorities.
func IsSystem(p *v1.Pod) bool { return p.Spec.Priority != nil && *p.Spec.Priority >= criticalPriority }

// IsCritical is the kubelet's IsCriticalPod: whatever comes from the node itself,
// its copy in an apiserver, and the system's own priorities.
func IsCritical(p *v1.Pod) bool {
	_, mirror := p.Annotations[v1.MirrorPodAnnotationKey]
	return IsStatic(p) || mirror || IsSystem(p)
}
