package pod

import v1 "k8s.io/api/core/v1"

// ClaimName is the claim that one of the pod's volumes takes its content from: the
// one that it names, or that is made for it (ephemeral), which upstream calls
// POD-VOLUME; "" for any other volume.
func ClaimName(p *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name
	}
	return ""
}

// BoundVolume is what a claim is bound to.
type BoundVolume struct {
	// Neither may be changed.
	Volume *v1.PersistentVolume
	Claim  *v1.PersistentVolumeClaim
	// ReadOnly is what the pod says of its volume: it must not write.
	ReadOnly bool
	// Cluster: both are an apiserver's.
	Cluster bool
}

// Block says that the volume is a device, not a file system.
func (b *BoundVolume) Block() bool {
	mode := b.Volume.Spec.VolumeMode
	return mode != nil && *mode == v1.PersistentVolumeBlock
}

// SinglePod says that one pod at a time may use the volume.
func (b *BoundVolume) SinglePod() bool {
	modes := b.Volume.Spec.AccessModes
	return len(modes) == 1 && modes[0] == v1.ReadWriteOncePod
}
