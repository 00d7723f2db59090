package podenv

import (
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

// The ports would be dead without a word.
func TestAHostIPThatPoddsNetworkCannotForwardIsTold(t *testing.T) {
	p := webPod(v1.PodSpec{Containers: []v1.Container{{Name: "web", Ports: []v1.ContainerPort{
		{ContainerPort: 80, HostPort: 8080, HostIP: "::1"}, {ContainerPort: 80, HostPort: 8081, HostIP: "0.0.0.0"}, {ContainerPort: 80, HostIP: "::1"},
	}}}})
	in, err := New(Config{BuiltinNetwork: true}).Sandbox(p)
	if err != nil || len(in.Warnings) != 1 || in.Warnings[0].Reason != "HostPortUnreachable" || !strings.Contains(in.Warnings[0].Message, "host port 8080 of web") {
		t.Errorf("on podd's network: got %+v, %v", in.Warnings, err)
	}
	if in, err := New(Config{}).Sandbox(p); err != nil || len(in.Warnings) != 0 {
		t.Errorf("on another network: got %+v, %v", in.Warnings, err)
	}
	p.Spec.HostNetwork = true
	if in, err := New(Config{BuiltinNetwork: true}).Sandbox(p); err != nil || len(in.Warnings) != 0 {
		t.Errorf("on the host's network: got %+v, %v", in.Warnings, err)
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
