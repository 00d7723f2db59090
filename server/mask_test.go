package server

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// fillSecrets fills every value of an environment variable or header, and every path
// of an HTTP action, that a pod's specification can hold.
func fillSecrets(v reflect.Value, count *int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillSecrets(v.Elem(), count)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillSecrets(v.Index(0), count)
	case reflect.Struct:
		switch p := v.Addr().Interface().(type) {
		case *v1.EnvVar:
			*p = v1.EnvVar{Name: "A", Value: "geheim"}
			*count++
			return
		case *v1.HTTPHeader:
			*p = v1.HTTPHeader{Name: "A", Value: "geheim"}
			*count++
			return
		case *v1.HTTPGetAction:
			fillSecrets(reflect.ValueOf(&p.HTTPHeaders).Elem(), count)
			p.Path = "/healthz?token=geheim"
			*count++
			return
		}
		for i := range v.NumField() {
			if v.Type().PkgPath() == "k8s.io/api/core/v1" && v.Type().Field(i).IsExported() {
				fillSecrets(v.Field(i), count)
			}
		}
	}
}

// TestThePortHidesWhatRootsManifestsHide: manifests are for root's eyes, and any
// local user may ask the port.
func TestThePortHidesWhatRootsManifestsHide(t *testing.T) {
	s, n := start(t, nil)
	p := aPod("secretive", runs)
	var places int
	fillSecrets(reflect.ValueOf(&p.Spec).Elem(), &places)
	p.Annotations = map[string]string{v1.LastAppliedConfigAnnotation: `{"env":"geheim"}`, "note": "kept"}
	places++
	if places < 3*(1+2*5) {
		t.Fatalf("got %d places for secrets: the test does not find them", places)
	}
	n.set(p)
	before, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	code, port := get(t, s, "readonly", "/pods")
	if code != 200 || strings.Contains(port, "geheim") || !strings.Contains(port, `"kept"`) {
		t.Errorf("port: got %d %s, want no secret and all the rest", code, port)
	}
	var list v1.PodList
	if err := json.Unmarshal([]byte(port), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("port: got %d pods (%v), want one", len(list.Items), err)
	}
	c := list.Items[0].Spec.Containers[0]
	if env := c.Env; !slices.Equal(env, []v1.EnvVar{{Name: "A", Value: "<masked>"}}) || c.LivenessProbe.HTTPGet.Path != "/healthz?<masked>" {
		t.Errorf("port: got %v and %s, want them masked", env, c.LivenessProbe.HTTPGet.Path)
	}
	for _, path := range []string{"/pods", "/podd/v1/pods"} {
		if _, whole := get(t, s, "socket", path); strings.Count(whole, "geheim") != places {
			t.Errorf("%s on the socket: got %d secrets, want all %d", path, strings.Count(whole, "geheim"), places)
		}
	}
	if after, err := json.Marshal(p); err != nil || string(after) != string(before) {
		t.Errorf("masking changed the pod itself (%v)", err)
	}
}

// TestAMaskedValueIsNoValueThatIsNotThere: an empty value is no secret, and one
// from elsewhere was never shown.
func TestAMaskedValueIsNoValueThatIsNotThere(t *testing.T) {
	p := aPod("a", runs)
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "EMPTY"}, {Name: "REF", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}}
	p.Spec.Containers[0].LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
	if got := maskedPods([]*v1.Pod{p}).Items[0]; !reflect.DeepEqual(got.Spec, p.Spec) {
		t.Errorf("got %+v, want it as it is", got.Spec)
	}
}
