package podenv

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestEnvironment(t *testing.T) {
	yes := true
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", Labels: map[string]string{"b": "2", "a": "1"}, Annotations: map[string]string{"x/y": "quoted \"z\""}},
		Spec:       v1.PodSpec{ServiceAccountName: "default"},
	}
	r := New(Config{NodeName: "node-1", NodeIPs: func() []string { return []string{"192.0.2.1", "2001:db8::1"} }, Allocatable: quantities("4", "8Gi")})
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
		{name: "secret", env: []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}}}}, err: `secret "s" not found`},
		{name: "optional configMap", env: []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{Optional: &yes}}}, {Name: "B", Value: "$(A)"}}, want: "B=$(A)"},
	} {
		c := &v1.Container{Name: "app", Env: tc.env, Resources: v1.ResourceRequirements{Requests: quantities("250m", "67500000")}}
		env, err := r.environment(p, c, []string{"10.0.0.2", "fd00::2"})
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: got error %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		var got []string
		for _, name := range env.Names {
			got = append(got, name+"="+env.Values[name])
		}
		if err != nil || strings.Join(got, "|") != tc.want {
			t.Errorf("%s: got %q, %v, want %q", tc.name, strings.Join(got, "|"), err, tc.want)
		}
	}
}

// TestAddressesAreInTheNodesOrder, whatever the network plugin's is: a variable
// that differed from the status sent clients to the other family.
func TestAddressesAreInTheNodesOrder(t *testing.T) {
	c := &v1.Container{Name: "app", Env: []v1.EnvVar{{Name: "P", ValueFrom: field("status.podIP")}, {Name: "PS", ValueFrom: field("status.podIPs")}}}
	for _, tc := range []struct {
		reported, node []string
		want           string
	}{
		{[]string{"10.0.0.2", "fd00::2"}, []string{"2001:db8::1", "192.0.2.1"}, "fd00::2 fd00::2,10.0.0.2"},
		{[]string{"fd00::2", "10.0.0.2", "10.0.0.3"}, []string{"192.0.2.1"}, "10.0.0.2 10.0.0.2,fd00::2"},
	} {
		in, err := New(Config{NodeIPs: func() []string { return tc.node }}).Container(&v1.Pod{}, c, tc.reported)
		if got := in.Env.Values["P"] + " " + in.Env.Values["PS"]; err != nil || got != tc.want {
			t.Errorf("%v on a node with %v: got %q, %v, want %q", tc.reported, tc.node, got, err, tc.want)
		}
	}
}

// TestANamedInitContainerHasNoLimitButItsOwn: the kubelet fills in the node's
// allocatable amount for ordinary containers and for the one that asks, not for
// an init container that a selector names, be it itself.
func TestANamedInitContainerHasNoLimitButItsOwn(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "setup"}, {Name: "side", RestartPolicy: &always},
			{Name: "bound", Resources: v1.ResourceRequirements{Limits: quantities("2", "1Gi")}}},
		Containers: []v1.Container{{Name: "app"}, {Name: "other"}},
	}}
	app, setup := &p.Spec.Containers[0], &p.Spec.InitContainers[0]
	for _, tc := range []struct {
		asks  *v1.Container
		named string
		want  string
	}{
		{app, "", "4"}, {app, "app", "4"}, {app, "other", "4"},
		{app, "setup", "0"}, {app, "side", "0"}, {app, "bound", "2"},
		{setup, "", "4"}, {setup, "setup", "0"}, {setup, "app", "4"},
	} {
		ref := &v1.ResourceFieldSelector{ContainerName: tc.named, Resource: "limits.cpu"}
		if got, err := resourceValue(p, tc.asks, ref, quantities("4", "8Gi")); err != nil || got != tc.want {
			t.Errorf("%s asks for limits.cpu of %q: got %q, %v, want %s", tc.asks.Name, tc.named, got, err, tc.want)
		}
	}
	if _, err := resourceValue(p, app, &v1.ResourceFieldSelector{ContainerName: "none", Resource: "limits.cpu"}, nil); err == nil {
		t.Error("a container that the pod has not: got no error")
	}
}
