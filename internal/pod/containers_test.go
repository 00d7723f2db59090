package pod_test

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func TestContainersOfASpec(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	spec := &v1.PodSpec{
		InitContainers: []v1.Container{{Name: "first"}, {Name: "mesh", RestartPolicy: &always}, {Name: "second"}},
		// The same policy makes no sidecar of a regular container.
		Containers:          []v1.Container{{Name: "app", RestartPolicy: &always}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "look"}}},
	}
	want := []string{"first 1", "mesh 2", "second 1", "app 0", "look 3"}
	var got []string
	for c, k := range pod.ContainerSpecs(spec) {
		got = append(got, fmt.Sprint(c.Name, " ", int(k)))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for i := range want {
		got = nil
		for c, k := range pod.ContainerSpecs(spec) {
			if got = append(got, fmt.Sprint(c.Name, " ", int(k))); len(got) > i {
				break
			}
		}
		if !slices.Equal(got, want[:i+1]) {
			t.Errorf("left after %d: got %v, want %v", i+1, got, want[:i+1])
		}
	}
	if c, k := pod.ContainerSpec(spec, "mesh"); c != &spec.InitContainers[1] || k != pod.SidecarContainer {
		t.Errorf("mesh: got %v, %v, want the spec's own, a sidecar", c, k)
	}
	if c, _ := pod.ContainerSpec(spec, "other"); c != nil {
		t.Errorf("a name that is not there: got %v, want nil", c)
	}
	if pod.HasProbes(spec) {
		t.Error("no probes: got some")
	}
	spec.InitContainers[1].StartupProbe = &v1.Probe{}
	if !pod.HasProbes(spec) {
		t.Error("a sidecar's startup probe: got none")
	}
}
