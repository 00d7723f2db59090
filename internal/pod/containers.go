package pod

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// ContainerKind is what part a container of a spec has in its pod's life.
type ContainerKind int

const (
	RegularContainer   ContainerKind = iota // what the pod is for; runs once all init containers have completed
	InitContainer                           // runs to its end before the next begins
	SidecarContainer                        // started in its turn among those, kept running, not counted (KEP-753)
	EphemeralContainer                      // started once, for a person who looks inside
)

// ContainerSpecs yields the containers of a spec in the order in which they
// start; ephemeral ones, which are no part of what the pod was made as, are
// last. The pointers lead into the spec.
func ContainerSpecs(spec *v1.PodSpec) iter.Seq2[*v1.Container, ContainerKind] {
	return func(yield func(*v1.Container, ContainerKind) bool) {
		for i := range spec.InitContainers {
			if c := &spec.InitContainers[i]; !yield(c, initKind(c)) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i], RegularContainer) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield((*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), EphemeralContainer) {
				return
			}
		}
	}
}

func initKind(c *v1.Container) ContainerKind {
	if IsSidecar(c) {
		return SidecarContainer
	}
	return InitContainer
}

// ContainerSpec is the container of that name, as a pointer into the spec, and
// its kind; nil where there is none.
func ContainerSpec(spec *v1.PodSpec, name string) (*v1.Container, ContainerKind) {
	for c, k := range ContainerSpecs(spec) {
		if c.Name == name {
			return c, k
		}
	}
	return nil, RegularContainer
}

// HasProbes says that a container of the spec has a probe. Ephemeral ones cannot.
func HasProbes(spec *v1.PodSpec) bool {
	for c := range ContainerSpecs(spec) {
		if c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil {
			return true
		}
	}
	return false
}
