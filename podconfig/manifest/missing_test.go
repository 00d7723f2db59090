package manifest

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// TestWhatAPodWouldWaitForIsReportedOnce has one object of each kind, and pods that
// name these, others, and keys of them.
func TestWhatAPodWouldWaitForIsReportedOnce(t *testing.T) {
	objects := Decode(join(settings, password), options("x")).Objects
	name := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	optional := true
	env := func(from *v1.EnvVarSource) v1.PodSpec {
		return v1.PodSpec{Containers: []v1.Container{{Env: []v1.EnvVar{{ValueFrom: from}, {ValueFrom: from}}}}}
	}
	volume := func(source v1.VolumeSource) v1.PodSpec {
		return v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: source}}}
	}
	for what, tt := range map[string]struct {
		spec v1.PodSpec
		want []string // field: message (hint)
	}{
		"a key that is there": {spec: env(&v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: name("settings"), Key: "colour"}})},
		"a key that is not": {env(&v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: name("settings"), Key: "color"}}),
			[]string{`spec.containers[0].env[0].valueFrom.configMapKeyRef: the ConfigMap default/settings has no key "color": the pod would wait for it (did you mean "colour"?)`}},
		"an optional key": {spec: env(&v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: name("none"), Key: "x", Optional: &optional}})},
		"a Secret that is not there": {env(&v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: name("passwort"), Key: "x"}}),
			[]string{`spec.containers[0].env[0].valueFrom.secretKeyRef: none of these files has the Secret default/passwort: the pod would wait for it (did you mean "password"?)`}},
		"all of an object": {v1.PodSpec{InitContainers: []v1.Container{{EnvFrom: []v1.EnvFromSource{
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: name("password")}}, {ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name("x")}}}}}},
			[]string{"spec.initContainers[0].envFrom[1].configMapRef: none of these files has the ConfigMap default/x: the pod would wait for it (write one, or make the reference optional)"}},
		"a volume": {volume(v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "password", Items: []v1.KeyToPath{{Key: "password"}, {Key: "user"}}}}),
			[]string{`spec.volumes[0].secret: the Secret default/password has no key "user": the pod would wait for it (add it, or make the reference optional)`}},
		"an optional volume": {spec: volume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: name("x"), Optional: &optional}})},
		"a projected one": {volume(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: name("settings")}}, {Secret: &v1.SecretProjection{LocalObjectReference: name("y")}}}}}),
			[]string{"spec.volumes[0].projected.sources[1].secret: none of these files has the Secret default/y: the pod would wait for it (write one, or make the reference optional)"}},
		"pulled without": {spec: v1.PodSpec{ImagePullSecrets: []v1.LocalObjectReference{name("x")}}},
	} {
		d := &pod.Desired{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: tt.spec}, Origin: "x", Line: 3}
		var got []string
		for _, p := range Missing(Content{Pods: []*pod.Desired{d}, Objects: objects}, noon) {
			got = append(got, fmt.Sprintf("%s: %s (%s)", p.Field, p.Message, p.Hint))
			if !p.Warning || p.Line != 3 || p.Pod != "default/web" {
				t.Errorf("%s: got %+v", what, p)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", what, got, tt.want)
		}
	}
}
