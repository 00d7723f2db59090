package cgroup

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

// DefaultRoot is where podd's groups are, as the cgroupfs driver writes it.
const DefaultRoot = "/podd/kubepods"

// Parent is the group of one pod, in the form that CRI's cgroup_parent takes for
// the driver: a path (cgroupfs) or the name of a slice (systemd).
func Parent(driver Driver, root string, p *v1.Pod) string {
	return parent(driver, root, QOS(p), p.UID)
}

func parent(driver Driver, root string, class v1.PodQOSClass, uid pod.UID) string {
	parts := strings.Split(strings.Trim(root, "/"), "/")
	if class != v1.PodQOSGuaranteed {
		parts = append(parts, strings.ToLower(string(class)))
	}
	parts = append(parts, "pod"+string(uid))
	if driver != Systemd {
		return "/" + path.Join(parts...)
	}
	return sliceName(parts)
}

// sliceName joins with dashes, which are systemd's slashes; dashes of a part
// itself become underscores, as the kubelet does.
func sliceName(parts []string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = strings.ReplaceAll(part, "-", "_")
	}
	return strings.Join(escaped, "-") + ".slice"
}

// slicePath is where a slice is in the hierarchy: every dash is a parent.
func slicePath(name string) string {
	stem := strings.TrimSuffix(name, ".slice")
	p := "/"
	for i, c := range stem {
		if c == '-' {
			p = path.Join(p, stem[:i]+".slice")
		}
	}
	return path.Join(p, name)
}

// QOS is the pod's class by the API's rules. Only CPU and memory count. What
// pod-level resources name decides alone where they are set.
func QOS(p *v1.Pod) v1.PodQOSClass {
	if r := p.Spec.Resources; r != nil && (len(r.Requests) > 0 || len(r.Limits) > 0) {
		return classOf([]v1.ResourceRequirements{*r})
	}
	var all []v1.ResourceRequirements
	for i := range p.Spec.InitContainers {
		all = append(all, p.Spec.InitContainers[i].Resources)
	}
	for i := range p.Spec.Containers {
		all = append(all, p.Spec.Containers[i].Resources)
	}
	return classOf(all)
}

// classOf: nothing named is BestEffort; everything limited, with equal requests
// in sum, is Guaranteed; the rest is Burstable.
func classOf(all []v1.ResourceRequirements) v1.PodQOSClass {
	guaranteed := true
	requests, limits := map[v1.ResourceName]resource.Quantity{}, map[v1.ResourceName]resource.Quantity{}
	for _, r := range all {
		add(requests, r.Requests)
		if add(limits, r.Limits) < 2 {
			guaranteed = false
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
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

// add sums up what a list names of CPU and memory, above zero, and counts it.
func add(sum map[v1.ResourceName]resource.Quantity, list v1.ResourceList) int {
	named := 0
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		q, ok := list[name]
		if !ok || q.Sign() <= 0 {
			continue
		}
		named++
		total := sum[name].DeepCopy()
		total.Add(q)
		sum[name] = total
	}
	return named
}
