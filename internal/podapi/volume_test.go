package podapi

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestVolumesAndClaimsAreUpstreams(t *testing.T) {
	one := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: v1.PersistentVolumeSpec{Capacity: one,
		AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv"}}}}
	DefaultVolume(v)
	if errs := ValidateVolume(v); len(errs) > 0 || v.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain || *v.Spec.VolumeMode != v1.PersistentVolumeFilesystem {
		t.Errorf("got %v, %+v", errs, v.Spec)
	}
	v.Spec.Capacity = nil
	if errs := ValidateVolume(v); len(errs) != 2 || errs[0].Field != "spec.capacity" {
		t.Errorf("got %v", errs)
	}
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}, Spec: v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}, Resources: v1.VolumeResourceRequirements{Requests: one}}}
	DefaultClaim(c)
	if errs := ValidateClaim(c); len(errs) > 0 || *c.Spec.VolumeMode != v1.PersistentVolumeFilesystem {
		t.Errorf("got %v, %+v", errs, c.Spec)
	}
	c.Spec.AccessModes = append(c.Spec.AccessModes, v1.ReadWriteOnce)
	if errs := ValidateClaim(c); len(errs) != 1 || errs[0].Detail != "may not use ReadWriteOncePod with other access modes" {
		t.Errorf("got %v", errs)
	}
}
