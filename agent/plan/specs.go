package plan

import (
	"iter"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// kind is what part a container has in its pod's life.
type kind int

const (
	regular   kind = iota // what the pod is for; runs once all initOnce are through
	initOnce              // runs to its end before the next begins
	sidecar               // started in its turn among them, kept running, not counted
	ephemeral             // started once, for a person who looks inside
)

// specs yields a pod's containers in the order in which they start; ephemeral
// ones are last.
func specs(p *v1.Pod) iter.Seq2[*v1.Container, kind] {
	return func(yield func(*v1.Container, kind) bool) {
		for i := range p.Spec.InitContainers {
			if c := &p.Spec.InitContainers[i]; !yield(c, initKind(c)) {
				return
			}
		}
		for i := range p.Spec.Containers {
			if !yield(&p.Spec.Containers[i], regular) {
				return
			}
		}
		for i := range p.Spec.EphemeralContainers {
			if !yield((*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon), ephemeral) {
				return
			}
		}
	}
}

func initKind(c *v1.Container) kind {
	if pod.IsSidecar(c) {
		return sidecar
	}
	return initOnce
}

// specOf returns the container of that name, or nil.
func specOf(p *v1.Pod, name string) (*v1.Container, kind) {
	for c, k := range specs(p) {
		if c.Name == name {
			return c, k
		}
	}
	return nil, 0
}
