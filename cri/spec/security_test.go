package spec

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/podfs"
)

func ptr[T any](v T) *T { return &v }

func secured(ps *v1.PodSecurityContext, cs *v1.SecurityContext) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"},
		Spec:       v1.PodSpec{SecurityContext: ps, Containers: []v1.Container{{Name: "app", SecurityContext: cs}}},
	}
}

func TestVerifyNonRoot(t *testing.T) {
	for _, tc := range []struct {
		name      string
		pod       *v1.Pod
		uid       *int64
		user, err string
	}{
		{"not asked", secured(nil, nil), ptr(int64(0)), "", ""},
		{"root image", secured(&v1.PodSecurityContext{RunAsNonRoot: ptr(true)}, nil), ptr(int64(0)), "", `container has runAsNonRoot and image will run as root (pod: "web_shop(u1)", container: app)`},
		{"image without a user", secured(&v1.PodSecurityContext{RunAsNonRoot: ptr(true)}, nil), nil, "", "image will run as root"},
		{"named user", secured(&v1.PodSecurityContext{RunAsNonRoot: ptr(true)}, nil), nil, "www", `container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root (pod: "web_shop(u1)", container: app)`},
		{"numeric user", secured(&v1.PodSecurityContext{RunAsNonRoot: ptr(true)}, nil), ptr(int64(7)), "", ""},
		{"runAsUser", secured(&v1.PodSecurityContext{RunAsNonRoot: ptr(true), RunAsUser: ptr(int64(7))}, nil), nil, "www", ""},
		{"runAsUser 0", secured(&v1.PodSecurityContext{RunAsNonRoot: ptr(true)}, &v1.SecurityContext{RunAsUser: ptr(int64(0))}), nil, "", `container's runAsUser breaks non-root policy (pod: "web_shop(u1)", container: app)`},
		{"the container's own no", secured(&v1.PodSecurityContext{RunAsNonRoot: ptr(true)}, &v1.SecurityContext{RunAsNonRoot: ptr(false)}), nil, "", ""},
	} {
		err := verifyNonRoot(tc.pod, &tc.pod.Spec.Containers[0], tc.uid, tc.user)
		if (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.err)
		}
	}
}

func TestContainerSecurity(t *testing.T) {
	p := secured(
		&v1.PodSecurityContext{RunAsUser: ptr(int64(5)), RunAsGroup: ptr(int64(6)), FSGroup: ptr(int64(7)), SupplementalGroups: []int64{8, 9}, SupplementalGroupsPolicy: ptr(v1.SupplementalGroupsPolicyStrict), SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}, SELinuxOptions: &v1.SELinuxOptions{Level: "s0"}},
		&v1.SecurityContext{RunAsUser: ptr(int64(50)), Privileged: ptr(true), ReadOnlyRootFilesystem: ptr(true), AllowPrivilegeEscalation: ptr(false), Capabilities: &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL"}}},
	)
	s, err := containerSecurity(Options{}, p, &p.Spec.Containers[0], nil, "www")
	if err != nil {
		t.Fatal(err)
	}
	if s.RunAsUser.Value != 50 || s.RunAsUsername != "" || s.RunAsGroup.Value != 6 || !s.Privileged || !s.ReadonlyRootfs || !s.NoNewPrivs {
		t.Errorf("got %+v", s)
	}
	if len(s.SupplementalGroups) != 3 || s.SupplementalGroups[0] != 7 || s.SupplementalGroupsPolicy != runtimeapi.SupplementalGroupsPolicy_Strict {
		t.Errorf("groups: got %v, %v", s.SupplementalGroups, s.SupplementalGroupsPolicy)
	}
	if s.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault || s.SelinuxOptions.Level != "s0" || s.Capabilities.AddCapabilities[0] != "NET_ADMIN" || s.Capabilities.DropCapabilities[0] != "ALL" {
		t.Errorf("got %+v", s)
	}
	if len(s.MaskedPaths) < 12 || len(s.ReadonlyPaths) != 5 {
		t.Errorf("masked %v, read-only %v", s.MaskedPaths, s.ReadonlyPaths)
	}
	p.Spec.Containers[0].SecurityContext.ProcMount = ptr(v1.UnmaskedProcMount)
	if s, _ := containerSecurity(Options{}, p, &p.Spec.Containers[0], nil, ""); s.MaskedPaths != nil || s.ReadonlyPaths != nil {
		t.Errorf("unmasked: got %v, %v", s.MaskedPaths, s.ReadonlyPaths)
	}
}

func TestUserOfTheImage(t *testing.T) {
	p := secured(nil, nil)
	for _, tc := range []struct {
		uid  *int64
		user string
		want string
	}{{ptr(int64(3)), "", "3/"}, {nil, "www", "nil/www"}, {nil, "", "0/"}} {
		s, err := containerSecurity(Options{}, p, &p.Spec.Containers[0], tc.uid, tc.user)
		if err != nil {
			t.Fatal(err)
		}
		got := "nil/" + s.RunAsUsername
		if s.RunAsUser != nil {
			got = string(rune('0'+s.RunAsUser.Value)) + "/" + s.RunAsUsername
		}
		if got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

func TestSeccompAndAppArmor(t *testing.T) {
	local := func(ref string) *v1.SecurityContext {
		return &v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: &ref}, AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &ref}}
	}
	o := Options{Dirs: podfs.Dirs{Root: "/r"}}.WithDefaults()
	p := secured(nil, local("a.json"))
	s, err := containerSecurity(o, p, &p.Spec.Containers[0], nil, "")
	if err != nil || s.Seccomp.LocalhostRef != "/r/seccomp/a.json" || s.Apparmor.LocalhostRef != "a.json" {
		t.Errorf("localhost: got %+v, %v", s, err)
	}
	p = secured(nil, local(""))
	if _, err := containerSecurity(o, p, &p.Spec.Containers[0], nil, ""); err == nil {
		t.Error("a Localhost profile without a name: got no error")
	}
	p = secured(nil, nil)
	s, _ = containerSecurity(o, p, &p.Spec.Containers[0], nil, "")
	if s.Seccomp.ProfileType != runtimeapi.SecurityProfile_Unconfined || s.Apparmor != nil {
		t.Errorf("nothing said: got %+v", s)
	}
	o.SeccompDefault = true
	p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/app": "localhost/x"}
	s, _ = containerSecurity(o, p, &p.Spec.Containers[0], nil, "")
	if s.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault || s.Apparmor.GetLocalhostRef() != "x" {
		t.Errorf("node default and annotation: got %+v", s)
	}
	p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}}
	if s, _ = containerSecurity(o, p, &p.Spec.Containers[0], nil, ""); s.Apparmor.GetLocalhostRef() != "x" {
		t.Errorf("the annotation of a container against the pod's field: got %+v", s.Apparmor)
	}
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
	if s, _ = containerSecurity(o, p, &p.Spec.Containers[0], nil, ""); s.Apparmor.GetProfileType() != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("the container's own field: got %+v", s.Apparmor)
	}
	p.Annotations, p.Spec.Containers[0].SecurityContext = nil, nil
	if s, _ = containerSecurity(o, p, &p.Spec.Containers[0], nil, ""); s.Apparmor.GetProfileType() != runtimeapi.SecurityProfile_Unconfined {
		t.Errorf("the pod's field: got %+v", s.Apparmor)
	}
}

func TestNamespaces(t *testing.T) {
	for _, tc := range []struct {
		spec          v1.PodSpec
		net, pid, ipc runtimeapi.NamespaceMode
	}{
		{v1.PodSpec{}, runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_CONTAINER, runtimeapi.NamespaceMode_POD},
		{v1.PodSpec{HostNetwork: true, HostPID: true, HostIPC: true}, runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE},
		{v1.PodSpec{ShareProcessNamespace: ptr(true)}, runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_POD},
	} {
		n := namespaces(&v1.Pod{Spec: tc.spec})
		if n.Network != tc.net || n.Pid != tc.pid || n.Ipc != tc.ipc {
			t.Errorf("%+v: got %v", tc.spec, n)
		}
	}
}
