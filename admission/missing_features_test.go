package admission

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestAChangeThatNeedsAFeatureOfAnotherNode: what upstream infers from a change, less what this
// node declares.
func TestAChangeThatNeedsAFeatureOfAnotherNode(t *testing.T) {
	with := func(cpu string) *v1.ResourceRequirements {
		return &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
	}
	inits := func(n int, cpu string) *v1.Pod {
		p := &v1.Pod{}
		for range n {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: "i", Resources: *with(cpu)})
		}
		return p
	}
	podLevel := func(cpu string) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{Resources: with(cpu)}} }
	limit := resource.MustParse("1Mi")
	inMemory := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit},
	}}}}}
	const initResize, podResize = "InPlacePodVerticalScalingInitContainers", "InPlacePodLevelResourcesVerticalScaling"
	for name, c := range map[string]struct {
		before, after *v1.Pod
		declared      []string
		want          []string
	}{
		"nothing changes":                    {inits(1, "1"), inits(1, "1"), nil, nil},
		"not declared":                       {inits(1, "1"), inits(1, "2"), []string{podResize}, []string{initResize}},
		"declared":                           {inits(1, "1"), inits(1, "2"), []string{initResize}, nil},
		"another":                            {podLevel("1"), podLevel("2"), []string{initResize}, []string{podResize}},
		"what no apiserver would allow":      {inits(2, "1"), inits(1, "2"), nil, nil},
		"a volume of another kind":           {&v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "v"}}}}, inMemory, nil, nil},
		"a name that upstream does not know": {inits(1, "1"), inits(1, "2"), []string{initResize, "Unknown"}, nil},
	} {
		if got := (&Gate{node: &Node{DeclaredFeatures: c.declared}}).MissingFeatures(c.before, c.after); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
