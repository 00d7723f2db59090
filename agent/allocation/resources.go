package allocation

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

// Resources are what a resize may change: those of the pod as a whole (nil where
// it names none), of its regular, init and sidecar containers, by name, and the size limits of
// its memory-backed emptyDirs, by the volume's name. podd grants no other size (package
// admission).
type Resources struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers,omitempty"`
	Volumes    map[string]resource.Quantity       `json:"volumes,omitempty"`
}

// ResourcesOf returns the resources that a pod's spec names. They share memory with it.
func ResourcesOf(p *v1.Pod) Resources {
	r := Resources{Pod: p.Spec.Resources, Containers: make(map[string]v1.ResourceRequirements)}
	for c := range resizable(&p.Spec) {
		r.Containers[c.Name] = c.Resources
	}
	for name, limit := range pod.MemoryBackedLimits(&p.Spec) {
		if r.Volumes == nil {
			r.Volumes = make(map[string]resource.Quantity)
		}
		r.Volumes[name] = *limit
	}
	return r
}

// Match says that a pod's spec names these resources. For a container or a volume that they do
// not name, the spec applies.
func (r Resources) Match(p *v1.Pod) bool {
	if !apiequality.Semantic.DeepEqual(p.Spec.Resources, r.Pod) {
		return false
	}
	for c := range resizable(&p.Spec) {
		if own, known := r.Containers[c.Name]; known && !apiequality.Semantic.DeepEqual(c.Resources, own) {
			return false
		}
	}
	for name, limit := range pod.MemoryBackedLimits(&p.Spec) {
		if own, known := r.Volumes[name]; known && own.Cmp(*limit) != 0 {
			return false
		}
	}
	return true
}

// ApplyTo is d with these resources; d is not changed.
func (r Resources) ApplyTo(d *pod.Desired) *pod.Desired {
	out := *d
	out.Pod = d.Pod.DeepCopy()
	out.Pod.Spec.Resources = r.Pod
	for c := range resizable(&out.Pod.Spec) {
		if own, known := r.Containers[c.Name]; known {
			c.Resources = own
		}
	}
	for name, limit := range pod.MemoryBackedLimits(&out.Pod.Spec) {
		if own, known := r.Volumes[name]; known {
			*limit = own.DeepCopy()
		}
	}
	return &out
}

// resizable yields the containers that a resize may be about.
func resizable(spec *v1.PodSpec) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for c, k := range pod.ContainerSpecs(spec) {
			if k.Resizable() && !yield(c) {
				return
			}
		}
	}
}
