package pod

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podWithReferences has one of each kind.
func podWithReferences() *v1.Pod {
	local := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	optional, bundle, class := true, "roots", "vm"
	volume := func(name string, s v1.VolumeSource) v1.Volume { return v1.Volume{Name: name, VolumeSource: s} }
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1.PodSpec{
		RuntimeClassName: &class,
		ImagePullSecrets: []v1.LocalObjectReference{local(""), local("pull")},
		Volumes: []v1.Volume{
			volume("settings", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: local("settings"), Optional: &optional,
				Items: []v1.KeyToPath{{Key: "a"}, {Key: "b"}}}}),
			volume("keys", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "keys"}}),
			volume("csi", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "disk.example.com", NodePublishSecretRef: &v1.LocalObjectReference{Name: "disk"}}}),
			volume("data", v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}),
			volume("scratch", v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}),
			volume("all", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: local("settings")}},
				{Secret: &v1.SecretProjection{LocalObjectReference: local("pin"), Items: []v1.KeyToPath{{Key: "c"}}}},
				{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: &bundle}},
			}}}),
			volume("none", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		},
		InitContainers: []v1.Container{{Name: "first", EnvFrom: []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: local("env")}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: local("env"), Optional: &optional}},
		}}},
		Containers: []v1.Container{{}, {Name: "web", Env: []v1.EnvVar{
			{Name: "PLAIN", Value: "v"},
			{Name: "A", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: local("env"), Key: "d"}}},
			{Name: "B", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: local("env"), Key: "e"}}},
		}}},
	}}
}

func TestReferencesAreWalkedWithTheirPathsAndKeys(t *testing.T) {
	var got []string
	for r := range References(podWithReferences()) {
		text := fmt.Sprintf("%s: %s", r.Path, r.Object)
		if r.KeyPath != "" {
			text += fmt.Sprintf(", key %s at %s", r.Key, r.KeyPath)
		}
		for what, set := range map[string]bool{"optional": r.Optional, "pull": r.ImagePull, "made": r.Generated} {
			if set {
				text += ", " + what
			}
		}
		got = append(got, text+", of "+r.Volume+r.Container)
	}
	want := []string{
		"spec.imagePullSecrets[1].name: Secret shop/pull, pull, of ",
		"spec.volumes[0].configMap.name: ConfigMap shop/settings, key a at spec.volumes[0].configMap.items[0].key, optional, of settings",
		"spec.volumes[0].configMap.name: ConfigMap shop/settings, key b at spec.volumes[0].configMap.items[1].key, optional, of settings",
		"spec.volumes[1].secret.secretName: Secret shop/keys, of keys",
		"spec.volumes[2].csi.driver: CSIDriver disk.example.com, of csi",
		"spec.volumes[2].csi.nodePublishSecretRef.name: Secret shop/disk, of csi",
		"spec.volumes[3].persistentVolumeClaim.claimName: PersistentVolumeClaim shop/data, of data",
		"spec.volumes[4].ephemeral: PersistentVolumeClaim shop/web-scratch, made, of scratch",
		"spec.volumes[5].projected.sources[0].configMap.name: ConfigMap shop/settings, of all",
		"spec.volumes[5].projected.sources[1].secret.name: Secret shop/pin, key c at spec.volumes[5].projected.sources[1].secret.items[0].key, of all",
		"spec.initContainers[0].envFrom[0].configMapRef.name: ConfigMap shop/env, of first",
		"spec.initContainers[0].envFrom[1].secretRef.name: Secret shop/env, optional, of first",
		"spec.containers[1].env[1].valueFrom.configMapKeyRef.name: ConfigMap shop/env, key d at spec.containers[1].env[1].valueFrom.configMapKeyRef.key, of web",
		"spec.containers[1].env[2].valueFrom.secretKeyRef.name: Secret shop/env, key e at spec.containers[1].env[2].valueFrom.secretKeyRef.key, of web",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	for range References(podWithReferences()) {
		break // ends the walk
	}
}

func TestReferencesOfAnApiserversPodNameWhatOnlyThatHas(t *testing.T) {
	p := podWithReferences()
	p.Annotations = map[string]string{AnnotationSource: string(SourceAPIServer)}
	var got []string
	for r := range References(p) {
		if !r.Object.Cluster {
			t.Errorf("%s: got an object of the manifests", r.Object)
		}
		if r.Object.Kind == KindClusterTrustBundle || r.Object.Kind == KindRuntimeClass {
			got = append(got, r.Path+": "+r.Object.String())
		}
	}
	want := []string{"spec.volumes[5].projected.sources[2].clusterTrustBundle.name: ClusterTrustBundle roots", "spec.runtimeClassName: RuntimeClass vm"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAPodWithoutItsReferencesHasNone(t *testing.T) {
	p := podWithReferences()
	before := p.DeepCopy()
	bare := WithoutReferences(p)
	for r := range References(bare) {
		t.Errorf("%s: got a reference to %s", r.Path, r.Object)
	}
	if got, want := len(slices.Collect(References(p))), len(slices.Collect(References(before))); got != want {
		t.Errorf("the pod itself has %d references, want %d", got, want)
	}
	if bare.Spec.Containers[1].Env[0].Value != "v" || len(bare.Spec.Volumes) != len(p.Spec.Volumes) {
		t.Errorf("got %+v, want all else kept", bare.Spec)
	}
}
