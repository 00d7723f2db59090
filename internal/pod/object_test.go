package pod

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestObjectsOfNamesEachOnce(t *testing.T) {
	local := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: v1.PodSpec{
		ImagePullSecrets: []v1.LocalObjectReference{local("pull")},
		Volumes: []v1.Volume{
			{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: local("settings")}}},
			{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "keys"}}},
			{VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{NodePublishSecretRef: &v1.LocalObjectReference{Name: "disk"}}}},
			{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: local("settings")}},
				{Secret: &v1.SecretProjection{LocalObjectReference: local("settings")}},
			}}}},
		},
		InitContainers: []v1.Container{{EnvFrom: []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: local("first")}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: local("keys")}},
		}}},
		Containers: []v1.Container{{Env: []v1.EnvVar{
			{Name: "PLAIN", Value: "v"},
			{Name: "A", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: local("last")}}},
			{Name: "B", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: local("")}}},
		}}},
	}}
	var got []string
	for _, key := range ReferencedObjects(p) {
		if key.Namespace != "shop" {
			t.Errorf("%v: want the pod's namespace", key)
		}
		got = append(got, key.Kind+"/"+key.Name)
	}
	want := []string{"Secret/pull", "ConfigMap/settings", "Secret/keys", "Secret/disk", "Secret/settings", "ConfigMap/first", "ConfigMap/last"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
