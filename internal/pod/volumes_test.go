package pod_test

import (
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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

func TestWhichVolumesHaveALimitInMemory(t *testing.T) {
	dir := func(medium v1.StorageMedium, limit string) v1.VolumeSource {
		e := &v1.EmptyDirVolumeSource{Medium: medium}
		if limit != "" {
			q := resource.MustParse(limit)
			e.SizeLimit = &q
		}
		return v1.VolumeSource{EmptyDir: e}
	}
	spec := &v1.PodSpec{Volumes: []v1.Volume{
		{Name: "memory", VolumeSource: dir(v1.StorageMediumMemory, "1Mi")}, {Name: "disk", VolumeSource: dir("", "1Mi")},
		{Name: "unlimited", VolumeSource: dir(v1.StorageMediumMemory, "")}, {Name: "zero", VolumeSource: dir(v1.StorageMediumMemory, "0")},
		{Name: "other"}, {Name: "last", VolumeSource: dir(v1.StorageMediumMemory, "2Mi")},
	}}
	var got []string
	for name, limit := range pod.MemoryBackedLimits(spec) {
		got = append(got, name+" "+limit.String())
	}
	if want := []string{"memory 1Mi", "last 2Mi"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for range pod.MemoryBackedLimits(spec) {
		break
	}
}
