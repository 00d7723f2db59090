package selinux

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

const fileLabel = "system_u:object_r:container_file_t:s0"

func TestLabelOfAVolume(t *testing.T) {
	level := func(s string) *v1.SELinuxOptions { return &v1.SELinuxOptions{Level: s} }
	const a = "s0:c1,c2"
	for name, c := range map[string]struct {
		whole             *v1.SELinuxOptions
		init, first, side *v1.SELinuxOptions // of containers that mount the volume
		other             *v1.SELinuxOptions // of one that does not
		policy            v1.PodSELinuxChangePolicy
		want              string
		conflict, invalid bool
	}{
		"no options":                        {},
		"of the pod":                        {whole: level(a), want: "system_u:object_r:container_file_t:s0:c1,c2"},
		"of a container":                    {first: level(a), want: "system_u:object_r:container_file_t:s0:c1,c2"},
		"all say the same":                  {whole: level(a), init: level(a), side: level(a), want: "system_u:object_r:container_file_t:s0:c1,c2"},
		"a user; types are of processes":    {whole: &v1.SELinuxOptions{User: "u", Role: "r", Type: "spc_t", Level: "s0"}, want: "u:object_r:container_file_t:s0"},
		"two labels":                        {whole: level(a), side: level("s0:c3,c4"), conflict: true},
		"two labels, of an init container":  {first: level(a), init: level("s0:c3,c4"), conflict: true},
		"another that does not mount it":    {whole: level(a), other: level("s0:c3,c4"), want: "system_u:object_r:container_file_t:s0:c1,c2"},
		"the runtime chooses the level":     {whole: &v1.SELinuxOptions{Type: "spc_t"}},
		"the pod wants it relabelled":       {whole: level(a), policy: v1.SELinuxChangePolicyRecursive},
		"the pod wants it mounted":          {whole: level(a), policy: v1.SELinuxChangePolicyMountOption, want: "system_u:object_r:container_file_t:s0:c1,c2"},
		"another mount option in the level": {whole: level(`s0",size=1T,context="x`), invalid: true},
		"a backslash in the user":           {whole: &v1.SELinuxOptions{User: `u\`, Level: "s0"}, invalid: true},
	} {
		container := func(name string, o *v1.SELinuxOptions, volumes ...string) v1.Container {
			c := v1.Container{Name: name}
			if o != nil {
				c.SecurityContext = &v1.SecurityContext{SELinuxOptions: o}
			}
			for _, v := range volumes {
				c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v})
			}
			return c
		}
		p := &v1.Pod{Spec: v1.PodSpec{
			SecurityContext: &v1.PodSecurityContext{SELinuxOptions: c.whole},
			InitContainers:  []v1.Container{container("init", c.init, "x", "data")},
			Containers:      []v1.Container{container("first", c.first, "data"), container("side", c.side, "data"), container("other", c.other, "x")},
		}}
		if c.policy != "" {
			p.Spec.SecurityContext.SELinuxChangePolicy = &c.policy
		}
		got, err := New(fileLabel).OfVolume(p, "data")
		_, conflict := errors.AsType[*ConflictError](err)
		_, invalid := errors.AsType[*LabelError](err)
		if got != c.want || conflict != c.conflict || invalid != c.invalid {
			t.Errorf("%s: got %q, %v; want %q, a conflict: %v, invalid: %v", name, got, err, c.want, c.conflict, c.invalid)
		}
		var off *Labels
		if got, err := off.OfVolume(p, "data"); got != "" || err != nil {
			t.Errorf("%s: without SELinux: got %q, %v", name, got, err)
		}
	}
	if New("") != nil || New("system_u:object_r:container_file_t") != nil {
		t.Error("got labels of a policy that has none")
	}
	if got, want := MountOption(fileLabel+":c1,c2"), `context="system_u:object_r:container_file_t:s0:c1,c2"`; got != want {
		t.Errorf("mount option: got %s, want %s", got, want)
	}
}

// TestOneContainerWithoutALabelHasTheRuntimeRelabel: it could not read files that are mounted
// with another container's label.
func TestOneContainerWithoutALabelHasTheRuntimeRelabel(t *testing.T) {
	l := New("system_u:object_r:container_file_t:s0")
	const label = "system_u:object_r:container_file_t:s0:c1,c2"
	mounts := []v1.VolumeMount{{Name: "token", MountPath: "/t"}}
	level := &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c1,c2"}}
	for name, c := range map[string]struct {
		containers []v1.Container
		whole      *v1.PodSecurityContext
		want       string
	}{
		"one":               {[]v1.Container{{Name: "a", VolumeMounts: mounts, SecurityContext: level}}, nil, label},
		"one without":       {[]v1.Container{{Name: "a", VolumeMounts: mounts, SecurityContext: level}, {Name: "b", VolumeMounts: mounts}}, nil, ""},
		"it does not mount": {[]v1.Container{{Name: "a", VolumeMounts: mounts, SecurityContext: level}, {Name: "b"}}, nil, label},
		"it has the pod's":  {[]v1.Container{{Name: "a", VolumeMounts: mounts, SecurityContext: level}, {Name: "b", VolumeMounts: mounts}}, &v1.PodSecurityContext{SELinuxOptions: level.SELinuxOptions}, label},
		"none has one":      {[]v1.Container{{Name: "a", VolumeMounts: mounts}}, nil, ""},
		"nobody mounts it":  {nil, nil, ""},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: c.containers, SecurityContext: c.whole}}
		if got := l.OfAllContainers(p, "token"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := LabelOf(t.TempDir() + "/none"); got != "" {
		t.Errorf("a file that is not there has the label %q", got)
	}
}

func TestThePolicysFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lxc_contexts")
	text := "# file = \"no\"\nprocess = \"system_u:system_r:container_t:s0\"\n  file = \"" + fileLabel + "\"\nSELINUXTYPE=targeted\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"file": fileLabel, "SELINUXTYPE": "targeted", "ro_file": ""} {
		if got := value(file, key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if got := value(file+"x", "file"); got != "" {
		t.Errorf("of no file: got %q", got)
	}
}
