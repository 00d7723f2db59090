package pod

import v1 "k8s.io/api/core/v1"

// ClaimName returns the claim that provides one of the pod's volumes: the claim that the
// volume names, or the one that is made for it (ephemeral), which upstream calls
// POD-VOLUME. It is "" for any other volume.
func ClaimName(p *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name
	}
	return ""
}

// BoundVolume is a claim and the volume that it is bound to.
type BoundVolume struct {
	// Neither may be changed.
	Volume *v1.PersistentVolume
	Claim  *v1.PersistentVolumeClaim
	// ReadOnly says that the pod must not write, according to its own spec of the volume.
	ReadOnly bool
	// Cluster says that both come from an apiserver.
	Cluster bool
}

// Block says that the volume is a device, not a file system.
func (b *BoundVolume) Block() bool {
	mode := b.Volume.Spec.VolumeMode
	return mode != nil && *mode == v1.PersistentVolumeBlock
}

// SinglePod says that only one pod at a time may use the volume.
func (b *BoundVolume) SinglePod() bool {
	modes := b.Volume.Spec.AccessModes
	return len(modes) == 1 && modes[0] == v1.ReadWriteOncePod
}
