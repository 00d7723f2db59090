package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestMemoryQoSRules: test/parity/oracle compares the pods' with upstream's, too.
func TestMemoryQoSRules(t *testing.T) {
	const mi = 1 << 20
	memory := func(text string) v1.ResourceList {
		if text == "" {
			return nil
		}
		return v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)}
	}
	aPod := func(request, limit, podRequest, podLimit string) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: v1.ResourceRequirements{Requests: memory(request), Limits: memory(limit)}}}}}
		if podRequest != "" || podLimit != "" {
			p.Spec.Resources = &v1.ResourceRequirements{Requests: memory(podRequest), Limits: memory(podLimit)}
		}
		if request == limit && limit != "" {
			for _, l := range []v1.ResourceList{p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Resources.Limits} {
				l[v1.ResourceCPU] = resource.MustParse("1") // Guaranteed
			}
		}
		return p
	}
	tiered, half := MemoryQoSRules{Tiered: true, Allocatable: 1000 * mi}, MemoryQoSRules{ThrottlingFactor: 0.5, Allocatable: 1000 * mi}
	both := tiered
	both.ThrottlingFactor = 0.9
	for name, c := range map[string]struct {
		rules          MemoryQoSRules
		pod            *v1.Pod
		container, all MemoryQoS
	}{
		"off":                                {MemoryQoSRules{}, aPod("64Mi", "128Mi", "64Mi", "128Mi"), MemoryQoS{}, MemoryQoS{}},
		"Guaranteed":                         {both, aPod("64Mi", "64Mi", "", ""), MemoryQoS{Min: 64 * mi}, MemoryQoS{Min: 64 * mi}},
		"Burstable":                          {tiered, aPod("64Mi", "128Mi", "", ""), MemoryQoS{Low: 64 * mi}, MemoryQoS{Low: 64 * mi}},
		"BestEffort":                         {tiered, aPod("", "", "", ""), MemoryQoS{}, MemoryQoS{}},
		"BestEffort, throttled":              {half, aPod("", "", "", ""), MemoryQoS{High: 500 * mi}, MemoryQoS{}},
		"throttled below the limit":          {half, aPod("64Mi", "128Mi", "", ""), MemoryQoS{High: 96 * mi}, MemoryQoS{}},
		"throttled without a limit":          {half, aPod("100Mi", "", "", ""), MemoryQoS{High: 550 * mi}, MemoryQoS{}},
		"whole pages":                        {MemoryQoSRules{ThrottlingFactor: 0.33}, aPod("", "1Mi", "", ""), MemoryQoS{High: 344064}, MemoryQoS{}},
		"not above the request":              {MemoryQoSRules{ThrottlingFactor: 0.001}, aPod("1Mi", "2Mi", "", ""), MemoryQoS{}, MemoryQoS{}},
		"the node's memory is unknown":       {MemoryQoSRules{ThrottlingFactor: 0.5}, aPod("1Mi", "", "", ""), MemoryQoS{}, MemoryQoS{}},
		"the pod's own limit throttles all":  {half, aPod("", "", "64Mi", "128Mi"), MemoryQoS{}, MemoryQoS{High: 96 * mi}},
		"both have limits":                   {half, aPod("32Mi", "64Mi", "64Mi", "128Mi"), MemoryQoS{High: 48 * mi}, MemoryQoS{High: 96 * mi}},
		"the pod's own request is protected": {tiered, aPod("16Mi", "", "64Mi", "128Mi"), MemoryQoS{Low: 16 * mi}, MemoryQoS{Low: 64 * mi}},
	} {
		if got := c.rules.OfContainer(c.pod, &c.pod.Spec.Containers[0]); got != c.container {
			t.Errorf("%s: container: got %+v, want %+v", name, got, c.container)
		}
		if got := c.rules.OfPod(c.pod); got != c.all {
			t.Errorf("%s: pod: got %+v, want %+v", name, got, c.all)
		}
	}
}
