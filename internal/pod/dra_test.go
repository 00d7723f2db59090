package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestWhichResourcesAClaimStandsFor(t *testing.T) {
	p := &v1.Pod{}
	if IsDRAExtendedResource(p, "c", "example.com/gpu") {
		t.Error("a pod without such a claim has a claimed resource")
	}
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{}
	for _, name := range []string{"example.com/gpu", "deviceclass.resource.kubernetes.io/gpu", "cpu", "kubernetes.io/x", "requests.example.com/gpu"} {
		p.Status.ExtendedResourceClaimStatus.RequestMappings = append(p.Status.ExtendedResourceClaimStatus.RequestMappings,
			v1.ContainerExtendedResourceRequest{ContainerName: "c", ResourceName: name})
	}
	for name, want := range map[v1.ResourceName]bool{
		"example.com/gpu": true, "deviceclass.resource.kubernetes.io/gpu": true,
		"cpu": false, "kubernetes.io/x": false, "requests.example.com/gpu": false, "example.com/other": false,
	} {
		if got := IsDRAExtendedResource(p, "c", name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if IsDRAExtendedResource(p, "d", "example.com/gpu") {
		t.Error("another container's counts")
	}
}
