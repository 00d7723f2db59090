package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"
)

// QOSClass returns the pod's class by the API's rules for non-zero CPU and memory:
// BestEffort if there are none, Guaranteed if every container limits both and the requests
// equal the limits, else Burstable. Resources of the pod itself, if given, take precedence.
// A class in the status never changes.
//
// The pod's cgroup, its containers' OOM scores and its status depend on it and must
// agree.
func QOSClass(p *v1.Pod) v1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	if resources.IsPodLevelResourcesSet(p) { // resources: {} is as if not there (kubernetes/kubernetes#137150)
		return classOf([]v1.ResourceRequirements{*p.Spec.Resources})
	}
	var all []v1.ResourceRequirements
	for c, kind := range ContainerSpecs(&p.Spec) {
		if kind != EphemeralContainer { // which cannot have any
			all = append(all, c.Resources)
		}
	}
	return classOf(all)
}

func classOf(all []v1.ResourceRequirements) v1.PodQOSClass {
	guaranteed := true
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	for _, r := range all {
		add(requests, r.Requests)
		if add(limits, r.Limits) < 2 {
			guaranteed = false
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

// add sums up the non-zero CPU and memory of a list, and counts them.
func add(sum, list v1.ResourceList) int {
	named := 0
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		q, ok := list[name]
		if !ok || q.Sign() <= 0 {
			continue
		}
		named++
		var total resource.Quantity
		if have, ok := sum[name]; ok {
			total = have.DeepCopy()
		}
		total.Add(q)
		sum[name] = total
	}
	return named
}
