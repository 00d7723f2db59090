package status

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"podd/internal/pod"
)

// podResources are what the pod as a whole was granted: its own resources if it names
// them, else the sum of its containers'.
func podResources(p *v1.Pod) (allocated v1.ResourceList, all *v1.ResourceRequirements) {
	none := resourcehelper.PodResourcesOptions{}
	all = &v1.ResourceRequirements{
		Requests: resourcehelper.PodRequests(p, none),
		Limits:   resourcehelper.PodLimits(p, none),
	}
	return all.Requests.DeepCopy(), all
}

// runningResources are the resources that the kubelet shows for a running pod of an apiserver
// (convertToAPIPodLevelResourcesStatus): those that the pod itself names, and CPU and memory of
// all, which are its podResources. actuated, if not nil, replace these during a resize.
//
// The sum of the limits that only some containers have is shown, too: where the pod's cgroup
// has no limit, the kubelet keeps what it showed before.
func runningResources(p *v1.Pod, all, actuated *v1.ResourceRequirements) *v1.ResourceRequirements {
	out := &v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	for _, from := range []*v1.ResourceRequirements{p.Spec.Resources, cpuAndMemory(all), actuated} {
		if from != nil {
			maps.Copy(out.Requests, from.Requests)
			maps.Copy(out.Limits, from.Limits)
		}
	}
	return out
}

func cpuAndMemory(r *v1.ResourceRequirements) *v1.ResourceRequirements {
	r = r.DeepCopy()
	for _, list := range []v1.ResourceList{r.Requests, r.Limits} {
		maps.DeleteFunc(list, func(name v1.ResourceName, _ resource.Quantity) bool {
			return name != v1.ResourceCPU && name != v1.ResourceMemory
		})
	}
	return r
}

// withAllocated returns the pod with what was granted, unless that is empty: for containers by
// name, and for the pod as a whole.
func withAllocated(p *v1.Pod, granted map[string]v1.ResourceRequirements, whole *v1.ResourceRequirements) *v1.Pod {
	if len(granted) == 0 {
		return p
	}
	p = &v1.Pod{Spec: p.Spec}
	p.Spec.Resources = whole
	p.Spec.InitContainers = withGranted(p.Spec.InitContainers, granted)
	p.Spec.Containers = withGranted(p.Spec.Containers, granted)
	return p
}

func withGranted(specs []v1.Container, granted map[string]v1.ResourceRequirements) []v1.Container {
	out := make([]v1.Container, len(specs))
	for i, c := range specs {
		if r, ok := granted[c.Name]; ok {
			c.Resources = r
		}
		out[i] = c
	}
	return out
}

const (
	// sharesPerCPU and minShares are cpu.shares of one processor and the least
	// that there is; minMilliLimit is the least limit that a quota of the
	// shortest kind expresses (pkg/kubelet/cm).
	sharesPerCPU  = 1024
	minShares     = 2
	minMilliLimit = 10
)

// containerResources are what the node granted a container, and its actual bounds. The
// bounds of a running container are the runtime's, if it reports them; those of any other
// container are the granted ones.
func (c *computation) containerResources(spec *v1.Container, seen *pod.Container) (allocated v1.ResourceList, actual *v1.ResourceRequirements) {
	granted := spec.Resources
	if r, ok := c.report.Allocated[spec.Name]; ok {
		granted = r
	}
	allocated, actual = granted.Requests.DeepCopy(), granted.DeepCopy()
	if seen.State != pod.ContainerRunning || seen.Resources == nil {
		return allocated, actual
	}
	r := seen.Resources
	if limits := actual.Limits; limits != nil {
		if r.CPUPeriod > 0 && r.CPUQuota > 0 {
			// A small quota stands for any smaller limit too: then what was asked
			// for is the better word. The same holds for shares.
			showMilli(limits, r.CPUQuota*1000/r.CPUPeriod, minMilliLimit)
		}
		if r.MemoryLimitInBytes > 0 {
			limits[v1.ResourceMemory] = *resource.NewQuantity(r.MemoryLimitInBytes, resource.BinarySI)
		}
	}
	if requests := actual.Requests; requests != nil && r.CPUShares >= minShares {
		showMilli(requests, (r.CPUShares*1000+sharesPerCPU-1)/sharesPerCPU, minShares)
	}
	return allocated, actual
}

// showMilli puts the runtime's value of cpu, in thousandths of a processor, over
// the one that was granted, unless both are at or below the least.
func showMilli(list v1.ResourceList, milli, least int64) {
	if milli > 0 && (milli > least || list.Cpu().MilliValue() > least) {
		list[v1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
	}
}
