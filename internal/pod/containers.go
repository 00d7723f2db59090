package pod

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// ContainerKind is the role of a container in its pod's lifecycle.
type ContainerKind int

const (
	RegularContainer   ContainerKind = iota // runs once all init containers have completed
	InitContainer                           // runs to completion before the next starts
	SidecarContainer                        // started in order with those, kept running, does not keep the pod running (KEP-753)
	EphemeralContainer                      // started once, for debugging
)

// Resizable says that containers of this kind may get other resources while their pod runs
// (KEP-1287).
func (k ContainerKind) Resizable() bool { return k != EphemeralContainer }

// ContainerSpecs yields the containers of a spec in the order in which they start.
// Ephemeral containers come last, because they were added later. The pointers point into
// the spec.
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

// ContainerPaths yields the containers of a spec with their paths, in the order of
// ContainerSpecs: spec.initContainers[0].
func ContainerPaths(spec *v1.PodSpec) iter.Seq2[string, *v1.Container] {
	return func(yield func(string, *v1.Container) bool) {
		i, last := 0, ""
		for c, kind := range ContainerSpecs(spec) {
			list := "spec.initContainers"
			switch kind {
			case RegularContainer:
				list = "spec.containers"
			case EphemeralContainer:
				list = "spec.ephemeralContainers"
			}
			if list != last {
				i, last = 0, list
			}
			if !yield(index(list, i), c) {
				return
			}
			i++
		}
	}
}

func initKind(c *v1.Container) ContainerKind {
	if IsSidecar(c) {
		return SidecarContainer
	}
	return InitContainer
}

// ContainerSpec returns the container of that name, as a pointer into the spec, and
// its kind; nil if there is none.
func ContainerSpec(spec *v1.PodSpec, name string) (*v1.Container, ContainerKind) {
	for c, k := range ContainerSpecs(spec) {
		if c.Name == name {
			return c, k
		}
	}
	return nil, RegularContainer
}

// HasProbes says that a container of the spec has a probe. Ephemeral containers cannot have
// any.
func HasProbes(spec *v1.PodSpec) bool {
	for c := range ContainerSpecs(spec) {
		if c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil {
			return true
		}
	}
	return false
}
