package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// TestWhatAPodWouldWaitForIsReportedOnce has one object of each kind, and pods that
// name these, others, and keys of them.
func TestWhatAPodWouldWaitForIsReportedOnce(t *testing.T) {
	objects := Decode(join(settings, password, strings.Replace(settings, "name: settings", "name: prices, namespace: shop", 1)), options("x")).Objects
	name := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	optional := true
	broken := []pod.Problem{{Origin: "y.yaml", Line: 7, Object: "ConfigMap default/bad", Message: "it is"}, {Origin: "y.yaml", Line: 9, Object: "ConfigMap default/bad"}}
	env := func(from *v1.EnvVarSource) v1.PodSpec {
		return v1.PodSpec{Containers: []v1.Container{{Env: []v1.EnvVar{{ValueFrom: from}, {ValueFrom: from}}}}}
	}
	volume := func(source v1.VolumeSource) v1.PodSpec {
		return v1.PodSpec{Volumes: []v1.Volume{{Name: "v", VolumeSource: source}}, Containers: []v1.Container{{VolumeMounts: []v1.VolumeMount{{Name: "v"}}}}}
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
		"one that is broken": {v1.PodSpec{Containers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name("bad")}}}}}},
			[]string{`spec.containers[0].envFrom[0].configMapRef: none of these files has the ConfigMap default/bad: the pod would wait for it (the one at y.yaml:7 is broken: fix that)`}},
		"one of another namespace": {v1.PodSpec{Containers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name("prices")}}}}}},
			[]string{`spec.containers[0].envFrom[0].configMapRef: none of these files has the ConfigMap default/prices: the pod would wait for it (there is one in the namespace "shop", and a pod sees those of its own only: write metadata: namespace: default there)`}},
		"all of an object": {v1.PodSpec{InitContainers: []v1.Container{{EnvFrom: []v1.EnvFromSource{
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: name("password")}}, {ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name("x")}}}}}},
			[]string{"spec.initContainers[0].envFrom[1].configMapRef: none of these files has the ConfigMap default/x: the pod would wait for it (write one, or make the reference optional)"}},
		"a volume": {volume(v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "password", Items: []v1.KeyToPath{{Key: "password"}, {Key: "user"}}}}),
			[]string{`spec.volumes[0].secret: the Secret default/password has no key "user": the pod would wait for it (add it, or make the reference optional)`}},
		"a volume that no container mounts": {spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "x"}}}}}},
		"an optional volume":                {spec: volume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: name("x"), Optional: &optional}})},
		"a projected one": {volume(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: name("settings")}}, {Secret: &v1.SecretProjection{LocalObjectReference: name("y")}}}}}),
			[]string{"spec.volumes[0].projected.sources[1].secret: none of these files has the Secret default/y: the pod would wait for it (write one, or make the reference optional)"}},
		"pulled without": {spec: v1.PodSpec{ImagePullSecrets: []v1.LocalObjectReference{name("x")}}},
	} {
		d := &pod.Desired{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: tt.spec}, Origin: "x", Line: 3}
		var got []string
		for _, p := range Missing(Content{Pods: []*pod.Desired{d}, Objects: objects}, broken, noon) {
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

// TestWhatIsMissingIsFoundAtABoundedCost: ten thousand names of a key that is not
// there, and of a hundred others, beside ten thousand long ones that are.
func TestWhatIsMissingIsFoundAtABoundedCost(t *testing.T) {
	data := map[string]string{}
	for i := range 10_000 {
		data[fmt.Sprintf("%0250d", i)] = ""
	}
	objects := []*pod.Object{{ConfigMap: &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: data}}}
	ref := func(key string) v1.EnvVar {
		return v1.EnvVar{ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Key: key}}}
	}
	var env []v1.EnvVar
	for i := range 10_000 {
		env = append(env, ref(fmt.Sprintf("%0249dx", i%200)))
	}
	d := &pod.Desired{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: v1.PodSpec{Containers: []v1.Container{{Env: env}}}}}
	f := newFound(objects, nil)
	f.missing(need{object: objects[0].Key(), key: strings.Repeat("n", 250)})
	if f.budget >= 0 {
		t.Errorf("%d steps are left after ten thousand comparisons of long names", f.budget)
	}
	if got := Missing(Content{Pods: []*pod.Desired{d}, Objects: objects}, nil, noon); len(got) != 101 {
		t.Errorf("got %d warnings, want a hundred and that there are more", len(got))
	}
}
