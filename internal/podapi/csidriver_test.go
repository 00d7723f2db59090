package podapi

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestACSIDriverIsUpstreams(t *testing.T) {
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"}}
	DefaultCSIDriver(d)
	if errs := ValidateCSIDriver(d); len(errs) > 0 || !*d.Spec.AttachRequired || *d.Spec.PodInfoOnMount || len(d.Spec.VolumeLifecycleModes) != 1 {
		t.Errorf("got %v, %+v", errs, d.Spec)
	}
	policy := storagev1.FSGroupPolicy("Some")
	d.Spec.FSGroupPolicy = &policy
	if errs := ValidateCSIDriver(d); len(errs) != 1 || errs[0].Field != "spec.fsGroupPolicy" {
		t.Errorf("got %v", errs)
	}
}
