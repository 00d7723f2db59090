package eviction

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/eviction/threshold"
)

// evictionMessage says in the kubelet's words why a pod is evicted (evictionMessage in
// pkg/kubelet/eviction/helpers.go): what was short, and which containers used more of it
// than they request.
func evictionMessage(p *v1.Pod, u *stats.PodStats, t *threshold.Threshold, o Observation) string {
	short := t.Signal.Resource()
	limit := t.Value.QuantityOf(o.Capacity)
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %v. ", short)
	fmt.Fprintf(&b, "Threshold quantity: %v, available: %v. ", &limit, upstreamQuantity(t.Signal, o.Available))
	if u == nil {
		return b.String()
	}
	if short == v1.ResourceMemory && resources.IsPodLevelResourcesSet(p) && u.Memory != nil {
		if asked, ok := p.Spec.Resources.Requests[short]; ok {
			used := memoryOf(u.Memory)
			fmt.Fprintf(&b, "Pod %s was using %s, request is %s, has larger consumption of %v. ", p.Name, used.String(), asked.String(), short)
		}
	}
	for i := range u.Containers {
		c := &u.Containers[i]
		asked, known := containerRequest(p, c.Name, short)
		used, measured := containerUsing(c, short)
		if known && measured && used.Cmp(asked) > 0 {
			fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %v. ", c.Name, used.String(), asked.String(), short)
		}
	}
	return b.String()
}

// upstreamQuantity is the quantity as upstream writes it.
func upstreamQuantity(s threshold.Signal, n int64) *resource.Quantity {
	switch s.Resource() {
	case threshold.ResourceInodes, threshold.ResourcePIDs:
		return resource.NewQuantity(n, resource.DecimalSI)
	}
	return resource.NewQuantity(n, resource.BinarySI)
}

// containerRequest does not know ephemeral containers: they cannot request anything, and
// would always be blamed.
func containerRequest(p *v1.Pod, name string, of v1.ResourceName) (q resource.Quantity, known bool) {
	for _, list := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].Resources.Requests[of], true
			}
		}
	}
	return q, false
}

func containerUsing(c *stats.ContainerStats, of v1.ResourceName) (q resource.Quantity, measured bool) {
	switch {
	case of == v1.ResourceMemory && c.Memory != nil && c.Memory.WorkingSetBytes != nil:
		return memoryOf(c.Memory), true
	case of == v1.ResourceEphemeralStorage && c.Rootfs != nil && c.Rootfs.UsedBytes != nil && c.Logs != nil && c.Logs.UsedBytes != nil:
		return *resource.NewQuantity(int64(*c.Rootfs.UsedBytes+*c.Logs.UsedBytes), resource.BinarySI), true
	}
	return q, false
}
