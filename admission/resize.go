package admission

import (
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// AdmitResize decides whether a running pod may get the resources of desired
// instead of those of allocated, beside others. Reason is v1.PodReasonInfeasible
// for what can never be granted to this generation of the pod, and
// v1.PodReasonDeferred for what may fit later. Verdict.Preempt asks for the end
// of other pods, as Admit's.
func AdmitResize(n *Node, desired, allocated *v1.Pod, others []*v1.Pod) pod.Verdict {
	if n.Swap != nil && resizesSwap(n, desired, allocated) {
		return reject(v1.PodReasonInfeasible, "In-place resize of containers with swap is not supported.")
	}
	v := Admit(n, desired, others)
	if v.Reason != "" {
		v.Reason = v1.PodReasonDeferred
	}
	return v
}

// resizesSwap says that a container's share of the swap, which follows its
// memory request, would change under it.
func resizesSwap(n *Node, desired, allocated *v1.Pod) bool {
	for c, kind := range pod.ContainerSpecs(&desired.Spec) {
		old, _ := pod.ContainerSpec(&allocated.Spec, c.Name)
		if kind == pod.EphemeralContainer || old == nil || restartsForMemory(old) {
			continue
		}
		a, b := c.Resources.Requests[v1.ResourceMemory], old.Resources.Requests[v1.ResourceMemory]
		if !a.Equal(b) && (n.Swap(desired, c) || n.Swap(allocated, old)) {
			return true
		}
	}
	return false
}

func restartsForMemory(c *v1.Container) bool {
	for _, policy := range c.ResizePolicy {
		if policy.ResourceName == v1.ResourceMemory {
			return policy.RestartPolicy == v1.RestartContainer
		}
	}
	return false
}
