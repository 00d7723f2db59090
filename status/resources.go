package status

import v1 "k8s.io/api/core/v1"

// resources are what the pod as a whole was granted and is bounded by: its own
// where it names them, else the sum of its containers'. A limit that not every
// container has bounds the pod by nothing.
func resources(p *v1.Pod) (allocated v1.ResourceList, all *v1.ResourceRequirements) {
	all = &v1.ResourceRequirements{}
	every := map[v1.ResourceName]int{}
	for i := range p.Spec.Containers {
		r := &p.Spec.Containers[i].Resources
		all.Requests = plus(all.Requests, r.Requests)
		all.Limits = plus(all.Limits, r.Limits)
		for name := range r.Limits {
			every[name]++
		}
	}
	for name, n := range every {
		if n < len(p.Spec.Containers) {
			delete(all.Limits, name)
		}
	}
	if own := p.Spec.Resources; own != nil {
		all.Requests, all.Limits = over(all.Requests, own.Requests), over(all.Limits, own.Limits)
	}
	return all.Requests.DeepCopy(), all
}

func plus(sum, more v1.ResourceList) v1.ResourceList {
	for name, q := range more {
		if sum == nil {
			sum = v1.ResourceList{}
		}
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
	return sum
}

// over replaces what the pod names itself.
func over(sum, own v1.ResourceList) v1.ResourceList {
	for name, q := range own {
		if sum == nil {
			sum = v1.ResourceList{}
		}
		sum[name] = q.DeepCopy()
	}
	return sum
}
