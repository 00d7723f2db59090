package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOSClass is the API's rule: BestEffort without any request or limit of CPU or
// memory, Guaranteed when every container limits both and requests exactly
// that, else Burstable. Resources of the pod itself, where given, decide alone.
// Ephemeral containers cannot have any.
func QOSClass(p *v1.Pod) v1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	guaranteed := true
	count := func(r v1.ResourceRequirements) {
		sum(requests, r.Requests)
		if sum(limits, r.Limits) < 2 {
			guaranteed = false
		}
	}
	if r := p.Spec.Resources; r != nil {
		count(*r)
	} else {
		for i := range p.Spec.Containers {
			count(p.Spec.Containers[i].Resources)
		}
		for i := range p.Spec.InitContainers {
			count(p.Spec.InitContainers[i].Resources)
		}
	}
	if len(requests)+len(limits) == 0 {
		return v1.PodQOSBestEffort
	}
	for name, request := range requests {
		if limit, ok := limits[name]; !ok || limit.Cmp(request) != 0 {
			guaranteed = false
		}
	}
	if guaranteed && len(requests) == len(limits) {
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// sum adds the CPU and memory of more to total and returns how many of the two
// are positive in more.
func sum(total, more v1.ResourceList) int {
	n := 0
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		q, ok := more[name]
		if !ok || q.Sign() <= 0 {
			continue
		}
		n++
		both := resource.Quantity{}
		if have, ok := total[name]; ok {
			both = have.DeepCopy()
		}
		both.Add(q)
		total[name] = both
	}
	return n
}
