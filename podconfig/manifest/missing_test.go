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
			[]string{`spec.containers[0].env[0].valueFrom.configMapKeyRef.key: the ConfigMap default/settings has no key "color": the pod would wait for it (did you mean "colour"?)`}},
		"an optional key": {spec: env(&v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: name("none"), Key: "x", Optional: &optional}})},
		"a Secret that is not there": {env(&v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: name("passwort"), Key: "x"}}),
			[]string{`spec.containers[0].env[0].valueFrom.secretKeyRef.name: none of these files has the Secret default/passwort: the pod would wait for it (did you mean "password"?)`}},
		"one that is broken": {v1.PodSpec{Containers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name("bad")}}}}}},
			[]string{`spec.containers[0].envFrom[0].configMapRef.name: none of these files has the ConfigMap default/bad: the pod would wait for it (the one at y.yaml:7 is broken: fix that)`}},
		"one of another namespace": {v1.PodSpec{Containers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name("prices")}}}}}},
			[]string{`spec.containers[0].envFrom[0].configMapRef.name: none of these files has the ConfigMap default/prices: the pod would wait for it (there is one in the namespace "shop", and a pod sees those of its own only: write metadata: namespace: default there)`}},
		"all of an object": {v1.PodSpec{InitContainers: []v1.Container{{EnvFrom: []v1.EnvFromSource{
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: name("password")}}, {ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name("x")}}}}}},
			[]string{"spec.initContainers[0].envFrom[1].configMapRef.name: none of these files has the ConfigMap default/x: the pod would wait for it (write one, or make the reference optional)"}},
		"a volume": {volume(v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "password", Items: []v1.KeyToPath{{Key: "password"}, {Key: "user"}}}}),
			[]string{`spec.volumes[0].secret.items[1].key: the Secret default/password has no key "user": the pod would wait for it (add it, or make the reference optional)`}},
		"a volume that no container mounts": {spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "x"}}}}}},
		"an optional volume":                {spec: volume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: name("x"), Optional: &optional}})},
		"a projected one": {volume(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: name("settings")}}, {Secret: &v1.SecretProjection{LocalObjectReference: name("y")}}}}}),
			[]string{"spec.volumes[0].projected.sources[1].secret.name: none of these files has the Secret default/y: the pod would wait for it (write one, or make the reference optional)"}},
		"pulled without": {v1.PodSpec{ImagePullSecrets: []v1.LocalObjectReference{name("x")}},
			[]string{"spec.imagePullSecrets[0].name: none of these files has the Secret default/x: images are pulled without it (write one of type kubernetes.io/dockerconfigjson, or remove it from imagePullSecrets)"}},
		"an inline volume's Secret": {volume(v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "disk.example.com", NodePublishSecretRef: &v1.LocalObjectReference{Name: "x"}}}),
			[]string{"spec.volumes[0].csi.nodePublishSecretRef.name: none of these files has the Secret default/x: the pod would wait for it (write one, or make the reference optional)"}},
		"a claim that is made for it": {spec: volume(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}})},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: tt.spec}
		var got []string
		missing, elsewhere := Missing(Content{Objects: objects}, needs(p, func(string) int { return 3 }), broken, true, noon)
		for _, p := range missing {
			got = append(got, fmt.Sprintf("%s: %s (%s)", p.Field, p.Message, p.Hint))
			if !p.Warning || p.Line != 3 {
				t.Errorf("%s: got %+v", what, p)
			}
		}
		if len(elsewhere) > 0 {
			t.Errorf("%s: got %v, want nothing elsewhere of a whole set", what, elsewhere)
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
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: v1.PodSpec{Containers: []v1.Container{{Env: env}}}}
	f := newObjectIndex(objects, nil)
	f.missingKey(Need{Object: objects[0].Key(), Key: strings.Repeat("n", 250)})
	if f.budget >= 0 {
		t.Errorf("%d steps are left after ten thousand comparisons of long names", f.budget)
	}
	all := needs(p, func(string) int { return 1 })
	if got, _ := Missing(Content{Objects: objects}, all, nil, true, noon); len(got) != 101 {
		t.Errorf("got %d warnings, want a hundred and that there are more", len(got))
	}
}

// TestWhatIsMissingIsToldAtTheLineOfItsReference, in a set and of a file alone; also of a
// list's items.
func TestWhatIsMissingIsToldAtTheLineOfItsReference(t *testing.T) {
	const list = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata:
    name: web
  spec:
    imagePullSecrets:
    - name: registry
    containers:
    - name: web
      image: localhost/web:1
      env:
      - name: PASSWORD
        valueFrom:
          secretKeyRef:
            name: db
            key: password
      envFrom:
      - configMapRef: {name: settings}
      - configMapRef: {name: extras, optional: true}
      volumeMounts:
      - {name: data, mountPath: /data}
    volumes:
    - name: data
      persistentVolumeClaim:
        claimName: data
    - name: unused
      secret: {secretName: unused}
`
	opt := options("web.yaml")
	opt.Needs = true
	r := Decode([]byte("# web\n---\n"+list), opt)
	where := func(problems []pod.Problem) (all []string) {
		for _, p := range problems {
			all = append(all, fmt.Sprintf("%s: %s: %s", p.Location(), p.Field, p.Message))
			if p.Pod != "default/web-node1" {
				t.Errorf("got %+v", p)
			}
		}
		return all
	}
	missing, _ := Missing(r.Content, r.Needs, nil, true, noon)
	want := []string{
		"web.yaml:12: items[0].spec.imagePullSecrets[0].name: none of these files has the Secret default/registry: images are pulled without it",
		"web.yaml:30: items[0].spec.volumes[0].persistentVolumeClaim.claimName: none of these files has the PersistentVolumeClaim default/data: the pod would wait for it",
		"web.yaml:23: items[0].spec.containers[0].envFrom[0].configMapRef.name: none of these files has the ConfigMap default/settings: the pod would wait for it",
		"web.yaml:20: items[0].spec.containers[0].env[0].valueFrom.secretKeyRef.name: none of these files has the Secret default/db: the pod would wait for it",
	}
	if got := where(missing); !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	missing, elsewhere := Missing(r.Content, r.Needs, nil, false, noon)
	want = []string{
		"web.yaml:12: items[0].spec.imagePullSecrets[0].name: needs: Secret default/registry",
		"web.yaml:30: items[0].spec.volumes[0].persistentVolumeClaim.claimName: needs: PersistentVolumeClaim default/data",
		"web.yaml:23: items[0].spec.containers[0].envFrom[0].configMapRef.name: needs: ConfigMap default/settings",
		"web.yaml:20: items[0].spec.containers[0].env[0].valueFrom.secretKeyRef.name: needs: Secret default/db, with the key password",
	}
	if got := where(elsewhere); !slices.Equal(got, want) || len(missing) > 0 {
		t.Errorf("got\n%q and %q\nwant\n%q", got, missing, want)
	}
}
