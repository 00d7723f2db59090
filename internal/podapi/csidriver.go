package podapi

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/storage"
	upstreamv1 "k8s.io/kubernetes/pkg/apis/storage/v1"
	"k8s.io/kubernetes/pkg/apis/storage/validation"
)

// DefaultCSIDriver is DefaultSecret for a CSIDriver: attachRequired is true,
// volumeLifecycleModes are [Persistent], fsGroupPolicy is ReadWriteOnceWithFSType.
func DefaultCSIDriver(d *storagev1.CSIDriver) { upstreamv1.SetObjectDefaults_CSIDriver(d) }

// ValidateCSIDriver is ValidateConfigMap for a CSIDriver, which must have been
// defaulted and have no namespace.
func ValidateCSIDriver(d *storagev1.CSIDriver) field.ErrorList {
	var in storage.CSIDriver
	if err := upstreamv1.Convert_v1_CSIDriver_To_storage_CSIDriver(d.DeepCopy(), &in, nil); err != nil {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("convert CSIDriver to upstream's internal form: %w", err))}
	}
	return validation.ValidateCSIDriver(&in)
}
