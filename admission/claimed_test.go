package admission

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The scheduler has found devices for them (KEP-5004): the node has its one gpu left, and no
// sum of others.
func TestWhatAResourceClaimStandsForIsNotCounted(t *testing.T) {
	const class = "deviceclass.resource.kubernetes.io/gpu"
	claimed := func(name string, resources ...string) *v1.Pod {
		p := tolerating(aPod(name, "cpu", "1", "example.com/gpu", "5", class, "5"))
		p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "made"}
		for _, r := range resources {
			p.Status.ExtendedResourceClaimStatus.RequestMappings = append(p.Status.ExtendedResourceClaimStatus.RequestMappings,
				v1.ContainerExtendedResourceRequest{ContainerName: "c", ResourceName: r, RequestName: "r"})
		}
		return p
	}
	all := claimed("a", "example.com/gpu", class)
	n := aNode()
	if got := shortages(n, all, nil); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	if got := shortages(n, aPod("b", "example.com/gpu", "1"), []*v1.Pod{all}); len(got) > 0 {
		t.Errorf("beside it: got %v", got)
	}
	if got := shortages(n, claimed("a", class), nil); len(got) != 1 || got[0].name != "example.com/gpu" {
		t.Errorf("one resource alone is claimed: got %v", got)
	}
	if got := shortages(n, claimed("a", "example.com/gpu"), nil); len(got) != 1 || got[0].name != class {
		t.Errorf("the other one alone is claimed: got %v", got)
	}
	if q := all.Spec.Containers[0].Resources.Requests["example.com/gpu"]; q.Value() != 5 {
		t.Error("the pod was changed")
	}
}
