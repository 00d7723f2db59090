package pod

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// UsedVolumes returns the names of the pod's volumes that one of its containers has in
// volumeMounts or volumeDevices, or takes a variable from (fileKeyRef). As with a kubelet,
// the others are not set up, and a pod does not wait for them.
func UsedVolumes(p *v1.Pod) map[string]bool {
	used := map[string]bool{}
	for c := range ContainerSpecs(&p.Spec) {
		for i := range c.VolumeMounts {
			used[c.VolumeMounts[i].Name] = true
		}
		for i := range c.VolumeDevices {
			used[c.VolumeDevices[i].Name] = true
		}
		for i := range c.Env {
			if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
				used[from.FileKeyRef.VolumeName] = true
			}
		}
	}
	return used
}

// MemoryBackedLimits yields the names and size limits of the memory-backed emptyDirs that have a
// size limit. The pointers point into the spec.
func MemoryBackedLimits(spec *v1.PodSpec) iter.Seq2[string, *resource.Quantity] {
	return func(yield func(string, *resource.Quantity) bool) {
		for i := range spec.Volumes {
			e := spec.Volumes[i].EmptyDir
			if e == nil || e.Medium != v1.StorageMediumMemory || e.SizeLimit == nil || e.SizeLimit.IsZero() {
				continue
			}
			if !yield(spec.Volumes[i].Name, e.SizeLimit) {
				return
			}
		}
	}
}
