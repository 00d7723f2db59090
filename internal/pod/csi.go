package pod

import v1 "k8s.io/api/core/v1"

// CSIVolume is a pod's volume from a CSI driver.
type CSIVolume struct {
	Pod *v1.Pod
	// Name is the name of the pod's volume for an inline volume, and the PersistentVolume's
	// for a persistent one.
	Name string
	// PodVolume is the name of the pod's volume.
	PodVolume string
	// Dir is the volume's directory below the pod's.
	Dir string
	// One of the two is set.
	Inline     *v1.CSIVolumeSource
	Persistent *v1.PersistentVolume
	// Claim is the claim of a persistent volume of a cluster.
	Claim *v1.PersistentVolumeClaim
	// ReadOnly says that the pod asks for a read-only volume.
	ReadOnly bool
}

// Driver returns the name of the volume's driver.
func (v *CSIVolume) Driver() string {
	if v.Inline != nil {
		return v.Inline.Driver
	}
	return v.Persistent.Spec.CSI.Driver
}

// Block says that the pod wants the device, not a file system on it.
func (v *CSIVolume) Block() bool {
	mode := (*v1.PersistentVolumeMode)(nil)
	if v.Persistent != nil {
		mode = v.Persistent.Spec.VolumeMode
	}
	return mode != nil && *mode == v1.PersistentVolumeBlock
}

// CSIDriver is a driver that has registered on this node.
type CSIDriver struct {
	// Name is the driver's name; NodeID is the driver's name for the node.
	Name, NodeID string
	// Topology is the node's place in the cluster, in the driver's terms: labels.
	Topology map[string]string
	// MaxVolumes is how many of the driver's volumes can be attached; 0 for no limit.
	MaxVolumes int64
}
