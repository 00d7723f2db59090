package podenv

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// objects has one of each kind, called "there"; "broken" cannot be had, and each
// time that "moving" is read it has another value.
type objects struct{ reads *int }

func (o objects) ConfigMap(_ *v1.Pod, name string) (*v1.ConfigMap, error) {
	if err := known("configmap", name); err != nil {
		return nil, err
	}
	if name == "moving" {
		*o.reads++
		return &v1.ConfigMap{Data: map[string]string{"a": fmt.Sprint(*o.reads), "b": fmt.Sprint(*o.reads)}}, nil
	}
	return &v1.ConfigMap{Data: map[string]string{"b": "2", "a": "1"}, BinaryData: map[string][]byte{"bin": {1}}}, nil
}

func (objects) Secret(_ *v1.Pod, name string) (*v1.Secret, error) {
	if err := known("secret", name); err != nil {
		return nil, err
	}
	if name == "binary" {
		return &v1.Secret{Data: map[string][]byte{"s": []byte("topsecret\xff"), "nul": []byte("topsecret\x00"), "text": []byte("fine")}}, nil
	}
	return &v1.Secret{Data: map[string][]byte{"s": []byte("secret"), "odd.name-1": []byte("odd")}}, nil
}

func known(kind, name string) error {
	switch name {
	case "there", "moving", "binary":
		return nil
	case "broken":
		return errors.New("no answer")
	}
	return fmt.Errorf("%s %q %w", kind, name, pod.ErrNotFound)
}

func localRef(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func keyOf(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: localRef(name), Key: key, Optional: &optional}}
}

func keyOfSecret(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: localRef(name), Key: key, Optional: &optional}}
}

func allOf(name, prefix string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: localRef(name), Optional: &optional}}
}

func allOfSecret(name, prefix string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, SecretRef: &v1.SecretEnvSource{LocalObjectReference: localRef(name), Optional: &optional}}
}

func TestVariablesFromObjects(t *testing.T) {
	one := func(from *v1.EnvVarSource) v1.Container {
		return v1.Container{Env: []v1.EnvVar{{Name: "V", ValueFrom: from}}}
	}
	all := func(from ...v1.EnvFromSource) v1.Container { return v1.Container{EnvFrom: from} }
	both := func(from v1.EnvFromSource, env ...v1.EnvVar) v1.Container {
		return v1.Container{EnvFrom: []v1.EnvFromSource{from}, Env: env}
	}
	for _, tc := range []struct {
		what string
		c    v1.Container
		want string // K=V in their order, joined by a blank
		says string
	}{
		{"a key", one(keyOf("there", "a", false)), "V=1", ""},
		{"a secret's", one(keyOfSecret("there", "s", false)), "V=secret", ""},
		{"no such key", one(keyOf("there", "z", false)), "", "couldn't find key z in ConfigMap default/there"},
		{"binaryData has no keys for variables", one(keyOf("there", "bin", false)), "", "couldn't find key bin in ConfigMap default/there"},
		{"no such key of a secret", one(keyOfSecret("there", "z", false)), "", "couldn't find key z in Secret default/there"},
		{"an optional key", one(keyOfSecret("there", "z", true)), "", ""},
		{"no such object", one(keyOf("none", "a", false)), "", `configmap "none" not found`},
		{"no such secret", one(keyOfSecret("none", "a", false)), "", `secret "none" not found`},
		{"an optional object", one(keyOf("none", "a", true)), "", ""},
		{"no answer is no object that is not there", one(keyOf("broken", "a", true)), "", "no answer"},
		{"all keys", all(allOf("there", "P_", false), allOfSecret("there", "", false)), "P_a=1 P_b=2 odd.name-1=odd s=secret", ""},
		{"a later object overrides an earlier", all(allOf("moving", "", false), allOf("there", "", false)), "a=1 b=2", ""},
		{"all keys of none", all(allOfSecret("none", "", false)), "", `secret "none" not found`},
		{"all keys of an optional one", all(allOf("none", "", true)), "", ""},
		{"a name that is no shell's", all(allOfSecret("there", "1.", false)), "1.odd.name-1=odd 1.s=secret", ""},
		{"env overrides envFrom", both(allOf("there", "", false), v1.EnvVar{Name: "b", Value: "own"}), "a=1 b=own", ""},
		{"an optional key that is not there overrides nothing", both(allOf("there", "", false), v1.EnvVar{Name: "b", ValueFrom: keyOf("there", "z", true)}), "a=1 b=2", ""},
		{"env uses envFrom", both(allOf("there", "", false), v1.EnvVar{Name: "V", Value: "$(a)$(b)"}), "a=1 b=2 V=12", ""},
		{"what came of an object is not expanded", both(allOfSecret("there", "$(x)", false)), "$(x)odd.name-1=odd $(x)s=secret", ""},
		{"all of one version", both(allOf("moving", "", false), v1.EnvVar{Name: "V", ValueFrom: keyOf("moving", "b", false)}), "a=1 b=1 V=1", ""},
		{"no text", one(keyOfSecret("binary", "s", false)), "V=topsecret\xff", ""},
		{"a NUL", one(keyOfSecret("binary", "nul", true)), "", "couldn't use key nul in Secret default/binary: its value has a NUL byte, which no variable can have: mount it as a volume"},
		{"a NUL among all keys", all(allOfSecret("binary", "", false)), "", "couldn't use key nul in Secret default/binary: its value has a NUL byte, which no variable can have: mount it as a volume"},
		{"text beside it", one(keyOfSecret("binary", "text", false)), "V=fine", ""},
	} {
		in, err := New(Config{Objects: objects{new(int)}}).Container(webPod(v1.PodSpec{}), &tc.c, nil)
		if tc.says != "" {
			if err == nil || err.Error() != tc.says {
				t.Errorf("%s: got %v, want %q", tc.what, err, tc.says)
			}
			continue
		}
		var got []string
		for _, name := range in.Env.Names {
			got = append(got, name+"="+in.Env.Values[name])
		}
		if err != nil || strings.Join(got, " ") != tc.want || len(in.Env.Names) != len(slices.Collect(maps.Keys(in.Env.Values))) {
			t.Errorf("%s: got %v (%v), want %v", tc.what, got, err, tc.want)
		}
	}
	none := all(allOf("there", "", false))
	if _, err := New(Config{}).Container(webPod(v1.PodSpec{}), &none, nil); !errors.Is(err, pod.ErrNotFound) || err.Error() != `configmap "there" not found` {
		t.Errorf("a node without objects: got %v", err)
	}
}
