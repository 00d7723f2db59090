package pod_test

import (
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func TestAVolumeIsUsedByWhateverContainerNamesIt(t *testing.T) {
	mounts := func(name string) []v1.VolumeMount { return []v1.VolumeMount{{Name: name}} }
	p := &v1.Pod{Spec: v1.PodSpec{
		Volumes:        []v1.Volume{{Name: "unused"}, {Name: "init"}, {Name: "regular"}, {Name: "device"}, {Name: "file"}, {Name: "ephemeral"}},
		InitContainers: []v1.Container{{VolumeMounts: mounts("init")}},
		Containers: []v1.Container{
			{VolumeMounts: mounts("regular"), VolumeDevices: []v1.VolumeDevice{{Name: "device"}}},
			{Env: []v1.EnvVar{{Name: "A"}, {ValueFrom: &v1.EnvVarSource{}}, {ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "file"}}}}},
		},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{VolumeMounts: mounts("ephemeral")}}},
	}}
	want := []string{"device", "ephemeral", "file", "init", "regular"}
	if got := slices.Sorted(maps.Keys(pod.UsedVolumes(p))); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
