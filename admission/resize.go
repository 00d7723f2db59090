package admission

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Why a resize is infeasible: the label reason_detail of kubelet_pod_infeasible_resizes_total.
const (
	detailSwap    = "swap_limitation"
	detailVolumes = "memory_volume_resize_gate_off"
)

// AdmitResize decides whether a running pod may get the resources of desired
// instead of those of allocated, beside others. Reason is v1.PodReasonInfeasible
// for what can never be granted to this generation of the pod, and
// v1.PodReasonDeferred for what may fit later. Verdict.Preempt asks for the end
// of other pods, as Admit's. detail says, for metrics, why a resize is infeasible. It is empty
// for any other verdict.
func AdmitResize(n *Node, desired, allocated *v1.Pod, others []*v1.Pod) (v pod.Verdict, detail string) {
	switch {
	case n.Swap != nil && resizesSwap(n, desired, allocated):
		v, detail = reject(v1.PodReasonInfeasible, "In-place resize of containers with swap is not supported."), detailSwap
	case resizesVolumes(desired, allocated):
		v, detail = reject(v1.PodReasonInfeasible, "Memory-backed emptyDir volume resize is disabled"), detailVolumes
	default:
		if v = Admit(n, desired, others); v.Reason != "" {
			v.Reason = v1.PodReasonDeferred
		}
	}
	return v, detail
}

// resizesVolumes says that the resize changes the size limit of a memory-backed emptyDir
// (InPlacePodVerticalScalingMemoryBackedVolumes, alpha in 1.37). podd cannot do that. An
// apiserver that checks declared features rejects such an update.
func resizesVolumes(desired, allocated *v1.Pod) bool {
	had := maps.Collect(pod.MemoryBackedLimits(&allocated.Spec))
	for name, limit := range pod.MemoryBackedLimits(&desired.Spec) {
		if old := had[name]; old != nil && old.Cmp(*limit) != 0 {
			return true
		}
	}
	return false
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
