package pod

import v1 "k8s.io/api/core/v1"

// CSIVolume is a volume of a pod that a CSI driver makes.
type CSIVolume struct {
	Pod *v1.Pod
	// Name is the pod's for an inline volume, and the PersistentVolume's for a
	// persistent one.
	Name string
	// Dir is the volume's directory below the pod's.
	Dir string
	// One of the two is set.
	Inline     *v1.CSIVolumeSource
	Persistent *v1.PersistentVolume
	// ReadOnly is what the pod asks for.
	ReadOnly bool
}

// Driver is the name of the volume's driver.
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
