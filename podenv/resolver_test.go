package podenv

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

func webPod(spec v1.PodSpec) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-web"}, Spec: spec}
}

func TestSandboxInputs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 192.0.2.53\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := New(Config{
		ResolvConf: &file, ClusterDomain: "cluster.local", // and no server for it
		CgroupParent:  func(p *v1.Pod) string { return "/podd/kubepods/pod" + string(p.UID) },
		UserNamespace: func(pod.UID) (uint32, uint32, error) { return 131072, 65536, nil },
	})
	no := false
	in, err := r.Sandbox(webPod(v1.PodSpec{DNSPolicy: v1.DNSClusterFirst, Hostname: "h", HostUsers: &no}))
	if err != nil {
		t.Fatal(err)
	}
	if in.Hostname != "h" || in.CgroupParent != "/podd/kubepods/poduid-web" || *in.UserNamespace != (pod.IDRange{First: 131072, Length: 65536}) || !slices.Equal(in.DNS.Servers, []string{"192.0.2.53"}) {
		t.Errorf("got %+v", in)
	}
	if len(in.Warnings) != 1 || in.Warnings[0].Reason != "MissingClusterDNS" || !strings.HasPrefix(in.Warnings[0].Message, "pod: \"web_default(uid-web)\".") {
		t.Errorf("warnings: got %+v", in.Warnings)
	}
	in, err = r.Sandbox(webPod(v1.PodSpec{DNSPolicy: v1.DNSDefault, HostNetwork: true}))
	if err != nil || in.Hostname != "" || in.UserNamespace != nil || len(in.Warnings) != 0 {
		t.Errorf("on the node's network: got %+v, %v", in, err)
	}
}

// On one machine without a cluster nobody chose ClusterFirst: it is a default.
func TestNobodyIsWarnedOfAClusterThatIsNotThere(t *testing.T) {
	in, err := New(Config{}).Sandbox(webPod(v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}))
	if err != nil || len(in.Warnings) != 0 {
		t.Errorf("got %+v (%v), want no warnings", in.Warnings, err)
	}
}

func TestHostsAreThePodsUnlessTheContainerHasItsOwn(t *testing.T) {
	r := New(Config{})
	c := &v1.Container{Name: "app"}
	in, err := r.Container(webPod(v1.PodSpec{}), c, []string{"10.99.0.3"})
	if err != nil || !strings.Contains(string(in.Hosts), "10.99.0.3\tweb\n") {
		t.Errorf("got %q, %v", in.Hosts, err)
	}
	c.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "etc/hosts/"}}
	if in, err = r.Container(webPod(v1.PodSpec{}), c, []string{"10.99.0.3"}); err != nil || in.Hosts != nil {
		t.Errorf("with its own: got %q, %v", in.Hosts, err)
	}
}

func TestSubPathExpressions(t *testing.T) {
	env := []v1.EnvVar{{Name: "A", Value: "one"}, {Name: "B", Value: "one-two$"}, {Name: "POD", Value: "web"}, {Name: "EMPTY"}, {Name: "UP", Value: "../.."}}
	r := New(Config{})
	for expression, tc := range map[string]struct{ want, says string }{
		"$(POD)/$(A)": {"web/one", ""},
		"$(B)":        {"one-two$", ""},
		"$$(A)$(POD)": {"$(A)web", ""},
		"plain$":      {"plain$", ""},
		"a/$(EMPTY)":  {"a/", ""},
		"$(NONE)":     {"", `subPathExpr "$(NONE)": missing value for "NONE"`},
		"$(UP)/etc":   {"../../etc", ""}, // volumes does not take it
	} {
		c := &v1.Container{Name: "c", Env: env, VolumeMounts: []v1.VolumeMount{{Name: "whole"}, {Name: "v", SubPathExpr: expression}, {Name: "v", SubPath: "$(A)"}}}
		in, err := r.Container(webPod(v1.PodSpec{}), c, nil)
		if tc.says != "" {
			if err == nil || err.Error() != tc.says {
				t.Errorf("%s: got %v, want %q", expression, err, tc.says)
			}
			continue
		}
		if want := []string{"", tc.want, "$(A)"}; err != nil || !slices.Equal(in.SubPaths, want) {
			t.Errorf("%s: got %q (%v), want %q", expression, in.SubPaths, err, want)
		}
	}
	wrong := &v1.Container{Env: []v1.EnvVar{{Name: "A", ValueFrom: field("status.none")}}, VolumeMounts: []v1.VolumeMount{{SubPathExpr: "$(A)"}}}
	if _, err := r.Container(webPod(v1.PodSpec{}), wrong, nil); err == nil || !strings.Contains(err.Error(), "env A:") {
		t.Errorf("variables that cannot be had: got %v", err)
	}
}

// objects has one of each kind, called "there"; "broken" cannot be had.
type objects struct{}

func (objects) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	if err := known(name); err != nil {
		return nil, err
	}
	return &v1.ConfigMap{Data: map[string]string{"b": "2", "a": "1"}}, nil
}

func (objects) Secret(namespace, name string) (*v1.Secret, error) {
	if err := known(name); err != nil {
		return nil, err
	}
	return &v1.Secret{Data: map[string][]byte{"s": []byte("secret")}}, nil
}

func known(name string) error {
	switch name {
	case "there":
		return nil
	case "broken":
		return errors.New("no answer")
	}
	return noSource("there is no " + name)
}

func TestVariablesFromObjects(t *testing.T) {
	yes := true
	ref := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	value := func(from v1.EnvVarSource) v1.Container {
		return v1.Container{Env: []v1.EnvVar{{Name: "V", ValueFrom: &from}}}
	}
	all := func(from ...v1.EnvFromSource) v1.Container { return v1.Container{EnvFrom: from} }
	with := New(Config{Objects: objects{}})
	for _, tc := range []struct {
		what string
		c    v1.Container
		want map[string]string
		says string
	}{
		{"a key", value(v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref("there"), Key: "a"}}), map[string]string{"V": "1"}, ""},
		{"a secret's", value(v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: ref("there"), Key: "s"}}), map[string]string{"V": "secret"}, ""},
		{"no such key", value(v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref("there"), Key: "z"}}), nil, "env V: couldn't find key z in ConfigMap default/there"},
		{"no such key of a secret", value(v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: ref("there"), Key: "z"}}), nil, "env V: couldn't find key z in Secret default/there"},
		{"an optional key", value(v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: ref("there"), Key: "z", Optional: &yes}}), nil, ""},
		{"an optional object", value(v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref("none"), Optional: &yes}}), nil, ""},
		{"no answer is no object that is not there", value(v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref("broken"), Optional: &yes}}), nil, "env V: couldn't get configMap default/broken: no answer"},
		{"all keys", all(v1.EnvFromSource{Prefix: "P_", ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("there")}}, v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref("there")}}), map[string]string{"P_a": "1", "P_b": "2", "s": "secret"}, ""},
		{"all keys of none", all(v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref("none")}}), nil, "envFrom: couldn't get secret default/none: there is no none"},
		{"all keys of an optional one", all(v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("none"), Optional: &yes}}), nil, ""},
	} {
		in, err := with.Container(webPod(v1.PodSpec{}), &tc.c, nil)
		if tc.says != "" {
			if err == nil || err.Error() != tc.says {
				t.Errorf("%s: got %v, want %q", tc.what, err, tc.says)
			}
			continue
		}
		if err != nil || !maps.Equal(in.Env.Values, tc.want) || !slices.Equal(in.Env.Names, slices.Sorted(maps.Keys(tc.want))) {
			t.Errorf("%s: got %v (%v), want %v", tc.what, in.Env, err, tc.want)
		}
	}
	none := all(v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("there")}})
	if _, err := New(Config{}).Container(webPod(v1.PodSpec{}), &none, nil); err == nil || err.Error() != "envFrom: couldn't get configMap default/there: podd has no source of ConfigMaps" {
		t.Errorf("a node without objects: got %v", err)
	}
}
