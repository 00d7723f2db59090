package admission

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// portHolder returns the pod that has a host port that p asks for; nil for none.
func portHolder(p *v1.Pod, others []*v1.Pod) (*v1.Pod, pod.HostPort) {
	return firstHolder(p, others, pod.HostPort.ConflictsWith)
}

// sharedPort names a host port of an admitted pod that another pod takes a part of, or
// loses a part to; "" for none. The kubelet admits such a pod without a word.
func sharedPort(p *v1.Pod, others []*v1.Pod) string {
	holder, port := firstHolder(p, others, pod.HostPort.Overlaps)
	if holder == nil {
		return ""
	}
	return fmt.Sprintf("host port %s overlaps with one of pod %s/%s: only one of the two gets what arrives where they do; give one of them another hostPort or hostIP",
		port, holder.Namespace, holder.Name)
}

func firstHolder(p *v1.Pod, others []*v1.Pod, conflict func(want, has pod.HostPort) bool) (*v1.Pod, pod.HostPort) {
	wants := pod.HostPorts(p)
	if len(wants) == 0 {
		return nil, pod.HostPort{}
	}
	for _, other := range others {
		for _, has := range pod.HostPorts(other) {
			for _, want := range wants {
				if conflict(want, has) {
					return other, want
				}
			}
		}
	}
	return nil, pod.HostPort{}
}
