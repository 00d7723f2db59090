package allocation

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"podd/internal/pod"
)

// Resources are what a resize may change: those of the pod as a whole (nil where
// it names none), and of its regular containers and sidecars, by name.
type Resources struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers,omitempty"`
}

// ResourcesOf returns the resources that a pod's spec names. They share memory with it.
func ResourcesOf(p *v1.Pod) Resources {
	r := Resources{Pod: p.Spec.Resources, Containers: make(map[string]v1.ResourceRequirements)}
	for c := range resizable(&p.Spec) {
		r.Containers[c.Name] = c.Resources
	}
	return r
}

// Match says that a pod's spec names these resources. For a container that they do not
// name, the spec applies.
func (r Resources) Match(p *v1.Pod) bool {
	if !apiequality.Semantic.DeepEqual(p.Spec.Resources, r.Pod) {
		return false
	}
	for c := range resizable(&p.Spec) {
		if own, known := r.Containers[c.Name]; known && !apiequality.Semantic.DeepEqual(c.Resources, own) {
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
	return &out
}

// resizable yields the containers that a resize may be about.
func resizable(spec *v1.PodSpec) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for c, k := range pod.ContainerSpecs(spec) {
			if (k == pod.RegularContainer || k == pod.SidecarContainer) && !yield(c) {
				return
			}
		}
	}
}
