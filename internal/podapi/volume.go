package podapi

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// DefaultVolume is DefaultSecret for a PersistentVolume: reclaim policy Retain,
// volumeMode Filesystem, the type of a hostPath.
func DefaultVolume(v *v1.PersistentVolume) { corev1.SetObjectDefaults_PersistentVolume(v) }

// DefaultClaim is DefaultSecret for a PersistentVolumeClaim: volumeMode Filesystem.
func DefaultClaim(c *v1.PersistentVolumeClaim) { corev1.SetObjectDefaults_PersistentVolumeClaim(c) }

// ValidateVolume is ValidateConfigMap for a PersistentVolume, which must have been
// defaulted and have no namespace.
func ValidateVolume(v *v1.PersistentVolume) field.ErrorList {
	var in core.PersistentVolume
	if err := corev1.Convert_v1_PersistentVolume_To_core_PersistentVolume(v.DeepCopy(), &in, nil); err != nil {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("convert PersistentVolume to upstream's internal form: %w", err))}
	}
	return validation.ValidatePersistentVolume(&in, validation.ValidationOptionsForPersistentVolume(&in, nil))
}

// ValidateClaim is ValidateConfigMap for a PersistentVolumeClaim, which must have
// been defaulted.
func ValidateClaim(c *v1.PersistentVolumeClaim) field.ErrorList {
	var in core.PersistentVolumeClaim
	if err := corev1.Convert_v1_PersistentVolumeClaim_To_core_PersistentVolumeClaim(c.DeepCopy(), &in, nil); err != nil {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("convert PersistentVolumeClaim to upstream's internal form: %w", err))}
	}
	return validation.ValidatePersistentVolumeClaim(&in, validation.ValidationOptionsForPersistentVolumeClaimCreate())
}
