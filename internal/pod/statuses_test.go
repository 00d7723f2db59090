package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestStatusesOfAllKindsOfContainers(t *testing.T) {
	p := &v1.PodStatus{
		InitContainerStatuses:      []v1.ContainerStatus{{Name: "a"}},
		ContainerStatuses:          []v1.ContainerStatus{{Name: "b"}, {Name: "c"}},
		EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "d"}},
	}
	names := ""
	for s := range ContainerStatuses(p) {
		names += s.Name
		s.Image = "seen"
	}
	if names != "abcd" || p.ContainerStatuses[1].Image != "seen" {
		t.Errorf("got %q, %+v", names, *p)
	}
	for range ContainerStatuses(p) {
		break
	}
	for _, name := range []string{"a", "c", "d"} {
		if s := ContainerStatus(p, name); s == nil || s.Name != name {
			t.Errorf("%s: got %v", name, s)
		}
	}
	if s := FindContainerStatus(p.ContainerStatuses, "c"); s != &p.ContainerStatuses[1] {
		t.Errorf("got %v", s)
	}
	if ContainerStatus(p, "e") != nil || FindContainerStatus(p.ContainerStatuses, "a") != nil {
		t.Error("found what is not there")
	}
}

func TestTheRuntimesIDOfAContainer(t *testing.T) {
	for shown, want := range map[string]string{"containerd://abc": "abc", "": "", "abc": "abc", "x://": ""} {
		if got := RuntimeID(shown); got != want {
			t.Errorf("%q: got %q, want %q", shown, got, want)
		}
	}
}
