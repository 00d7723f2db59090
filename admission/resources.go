package admission

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"podd/internal/pod"
)

// shortage is a resource that the node has too little of, in the units of amount.
type shortage struct {
	name                      v1.ResourceName
	requested, used, capacity int64
}

// shortages are in the scheduler's order: pods, cpu, memory, ephemeral-storage,
// then all others by name.
func shortages(n *Node, p *v1.Pod, others []*v1.Pod) []shortage {
	var all []shortage
	if room := amount(n.Allocatable, v1.ResourcePods); int64(len(others))+1 > room {
		all = append(all, shortage{v1.ResourcePods, 1, int64(len(others)), room})
	}
	wants := requests(n, p)
	if len(wants) == 0 {
		return all
	}
	used := map[v1.ResourceName]int64{}
	for _, other := range others {
		sum := resource.PodRequests(withoutClaimed(other), resource.PodResourcesOptions{})
		for name := range sum {
			used[name] += amount(sum, name)
		}
	}
	names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	var rest []v1.ResourceName
	for name := range wants {
		if scalar(name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	for _, name := range append(names, rest...) {
		want, room := amount(wants, name), amount(n.Allocatable, name)
		if want > 0 && want > room-used[name] {
			all = append(all, shortage{name, want, used[name], room})
		}
	}
	return all
}

// withoutClaimed returns a pod without the extended resources that a ResourceClaim stands for. The
// scheduler has counted their devices, and the node has none of that resource (upstream's
// removeMissingExtendedResources).
func withoutClaimed(p *v1.Pod) *v1.Pod {
	if p.Status.ExtendedResourceClaimStatus == nil {
		return p
	}
	p = p.DeepCopy()
	for c := range pod.ContainerSpecs(&p.Spec) {
		maps.DeleteFunc(c.Resources.Requests, func(name v1.ResourceName, _ quantity.Quantity) bool {
			return pod.IsDRAExtendedResource(p, c.Name, name)
		})
	}
	return p
}

// requests is what a pod needs of the node by upstream's sum, without the kinds that its
// containers ask for and the node does not count.
func requests(n *Node, p *v1.Pod) v1.ResourceList {
	sum := resource.PodRequests(withoutClaimed(p), resource.PodResourcesOptions{ExcludeOverhead: true})
	for name := range sum {
		if _, counted := n.Allocatable[name]; !counted && extended(name) {
			delete(sum, name)
		}
	}
	for name, q := range p.Spec.Overhead {
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
	for name, q := range sum {
		if q.IsZero() {
			delete(sum, name)
		}
	}
	return sum
}

// amount is in thousandths of a processor for cpu, else in the resource's unit.
func amount(list v1.ResourceList, name v1.ResourceName) int64 {
	q := list[name]
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// extended says that a resource is of a kind that the node does not know by
// itself.
func extended(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix)
}

// scalar says that a resource is counted by its name alone.
func scalar(name v1.ResourceName) bool {
	return extended(name) || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix) ||
		strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) || strings.HasPrefix(string(name), v1.ResourceAttachableVolumesPrefix)
}
