package cri

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func quantities(cpu, memory string) v1.ResourceList {
	l := v1.ResourceList{}
	if cpu != "" {
		l[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func field(path string) *v1.EnvVarSource {
	return &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
}

func amount(res, divisor string) *v1.EnvVarSource {
	s := &v1.ResourceFieldSelector{Resource: res}
	if divisor != "" {
		s.Divisor = resource.MustParse(divisor)
	}
	return &v1.EnvVarSource{ResourceFieldRef: s}
}

func TestStopSignals(t *testing.T) {
	for name, want := range map[v1.Signal]runtimeapi.Signal{
		v1.SIGTERM: runtimeapi.Signal_SIGTERM, v1.SIGRTMINPLUS1: runtimeapi.Signal_SIGRTMINPLUS1, v1.SIGRTMAXMINUS14: runtimeapi.Signal_SIGRTMAXMINUS14,
		v1.SIGRTMIN: runtimeapi.Signal_SIGRTMIN, v1.SIGCLD: runtimeapi.Signal_SIGCLD, "": runtimeapi.Signal_RUNTIME_DEFAULT,
	} {
		if got := stopSignal(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	yes := true
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", Labels: map[string]string{"b": "2", "a": "1"}, Annotations: map[string]string{"x/y": "quoted \"z\""}},
		Spec:       v1.PodSpec{ServiceAccountName: "default"},
	}
	facts := envFacts{nodeName: "node-1", nodeIPs: []string{"192.0.2.1", "2001:db8::1"}, podIPs: []string{"10.0.0.2", "fd00::2"}, allocatable: quantities("4", "8Gi")}
	for _, tc := range []struct {
		name string
		env  []v1.EnvVar
		want string // K=V joined by |
		err  string
	}{
		{name: "order and references to earlier ones", env: []v1.EnvVar{{Name: "Z", Value: "1"}, {Name: "A", Value: "$(Z)$(LATER)"}, {Name: "LATER", Value: "x"}}, want: "Z=1|A=1$(LATER)|LATER=x"},
		{name: "a name twice", env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}, {Name: "A", Value: "$(A)3"}}, want: "A=13|B=2"},
		{name: "empty", env: []v1.EnvVar{{Name: "A"}}, want: "A="},
		{name: "metadata", env: []v1.EnvVar{{Name: "N", ValueFrom: field("metadata.name")}, {Name: "S", ValueFrom: field("metadata.namespace")}, {Name: "U", ValueFrom: field("metadata.uid")}}, want: "N=web|S=shop|U=u1"},
		{name: "labels", env: []v1.EnvVar{{Name: "L", ValueFrom: field("metadata.labels['a']")}, {Name: "M", ValueFrom: field("metadata.labels")}, {Name: "X", ValueFrom: field("metadata.annotations['x/y']")}, {Name: "NO", ValueFrom: field("metadata.labels['none']")}}, want: "L=1|M=a=\"1\"\nb=\"2\"|X=quoted \"z\"|NO="},
		{name: "addresses", env: []v1.EnvVar{{Name: "P", ValueFrom: field("status.podIP")}, {Name: "PS", ValueFrom: field("status.podIPs")}, {Name: "H", ValueFrom: field("status.hostIP")}, {Name: "HS", ValueFrom: field("status.hostIPs")}}, want: "P=10.0.0.2|PS=10.0.0.2,fd00::2|H=192.0.2.1|HS=192.0.2.1,2001:db8::1"},
		{name: "spec", env: []v1.EnvVar{{Name: "N", ValueFrom: field("spec.nodeName")}, {Name: "SA", ValueFrom: field("spec.serviceAccountName")}}, want: "N=node-1|SA=default"},
		{name: "resources round up", env: []v1.EnvVar{{Name: "C", ValueFrom: amount("requests.cpu", "")}, {Name: "CM", ValueFrom: amount("requests.cpu", "1m")}, {Name: "M", ValueFrom: amount("requests.memory", "1Mi")}, {Name: "ML", ValueFrom: amount("limits.memory", "1Gi")}, {Name: "CL", ValueFrom: amount("limits.cpu", "")}}, want: "C=1|CM=250|M=65|ML=8|CL=4"},
		{name: "unknown field", env: []v1.EnvVar{{Name: "A", ValueFrom: field("status.phase2")}}, err: "env A: field label not supported: status.phase2"},
		{name: "unknown resource", env: []v1.EnvVar{{Name: "A", ValueFrom: amount("limits.gpu", "")}}, err: "env A: unsupported container resource : limits.gpu"},
		{name: "secret", env: []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}}}}, err: "couldn't get secret shop/s"},
		{name: "optional configMap", env: []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{Optional: &yes}}}, {Name: "B", Value: "$(A)"}}, want: "B=$(A)"},
	} {
		c := &v1.Container{Name: "app", Env: tc.env, Resources: v1.ResourceRequirements{Requests: quantities("250m", "67500000")}}
		kv, _, err := environment(p, c, facts)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: got error %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		var got []string
		for _, e := range kv {
			got = append(got, e.Key+"="+string(e.Value))
		}
		if err != nil || strings.Join(got, "|") != tc.want {
			t.Errorf("%s: got %q, %v, want %q", tc.name, strings.Join(got, "|"), err, tc.want)
		}
	}
}
