package pod

import v1 "k8s.io/api/core/v1"

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
