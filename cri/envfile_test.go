package cri_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func TestVariablesFromAFile(t *testing.T) {
	r := newRig(t)
	volume := t.TempDir()
	r.opts.VolumePath = func(_ *v1.Pod, name string) (string, error) {
		if name != "config" {
			return "", errors.New("no such volume")
		}
		return volume, nil
	}
	r.dial(t)
	if err := os.WriteFile(filepath.Join(volume, "env"), []byte("# made by init\nA='one'\nB='two\nlines' # so\nA='second'\nEMPTY=''\nC= 'x'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(volume, "big"), make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"inside": "env", "absolute": "/env", "outside": "../../../../../etc/passwd", "magic": "/proc/self/environ"} {
		if err := os.Symlink(to, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	mkfifo(t, filepath.Join(volume, "fifo"))
	p := aPod("web")
	s := r.sandbox(t, p, 0)
	n := int32(0)
	value := func(ref v1.FileKeySelector) (string, error) {
		n++
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "V", ValueFrom: &v1.EnvVarSource{FileKeyRef: &ref}}, {Name: "W", Value: "<$(V)>"}}
		id, err := r.CreateContainer(t.Context(), r.request(p, s, n))
		for _, c := range r.srv.Containers() {
			if c.ID == id {
				return string(c.Config.Envs[len(c.Config.Envs)-1].Value), err
			}
		}
		return "", err
	}
	for _, c := range []struct{ volume, path, key, want string }{
		{"config", "env", "A", "<one>"}, {"config", "env", "B", "<two\nlines>"}, {"config", "inside", "A", "<one>"}, {"config", "absolute", "A", "<one>"},
	} {
		if got, err := value(v1.FileKeySelector{VolumeName: c.volume, Path: c.path, Key: c.key}); err != nil || got != c.want {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
	}
	for _, c := range []struct{ volume, path, key, want string }{
		{"config", "env", "EMPTY", `env V: environment variable key "EMPTY" not found in file "env"`},
		{"config", "env", "C", "not found"}, {"config", "env", "Z", "not found"},
		{"config", "none", "A", "couldn't parse env file"}, {"config", "fifo", "A", "not a regular file"}, {"config", "big", "A", "larger than"},
		{"config", "outside", "A", "couldn't parse env file"}, {"config", "magic", "A", "couldn't parse env file"}, {"config", ".", "A", "not a regular file"},
		{"other", "env", "A", `cannot find the volume "other" referenced by FileKeyRef`},
	} {
		if _, err := value(v1.FileKeySelector{VolumeName: c.volume, Path: c.path, Key: c.key}); pod.ReasonOf(err, "") != "CreateContainerConfigError" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	for _, path := range []string{"env", "none"} {
		if got, err := value(v1.FileKeySelector{VolumeName: "config", Path: path, Key: "Z", Optional: ptr(true)}); err != nil || got != "<$(V)>" {
			t.Errorf("optional in %s: got %q, %v", path, got, err)
		}
	}
}

func TestVariablesOfAContainerThatIsToBeMade(t *testing.T) {
	r := newRig(t)
	p := aPod("web", func(p *v1.Pod) {
		p.Spec.Containers[0].Env = []v1.EnvVar{
			{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "HOST", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.hostIP"}}},
		}
	})
	r.sandbox(t, p, 0)
	ip := r.observe(t, p.UID).Sandboxes[0].IPs[0]
	if got, err := r.Variables(p, &p.Spec.Containers[0]); err != nil || got["IP"] != ip || got["HOST"] != "192.0.2.1" {
		t.Errorf("got %v, %v, want %s", got, err, ip)
	}
	p.Spec.HostNetwork = true
	if got, err := r.Variables(p, &p.Spec.Containers[0]); err != nil || got["IP"] != "192.0.2.1" {
		t.Errorf("on the node's network: got %v, %v", got, err)
	}
}
