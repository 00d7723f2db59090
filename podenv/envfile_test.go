package podenv_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/podenv"
)

func TestVariablesFromAFile(t *testing.T) {
	volume := t.TempDir()
	r := podenv.New(podenv.Config{Volumes: volumes{"config": volume}})
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
	if err := unix.Mkfifo(filepath.Join(volume, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	value := func(ref v1.FileKeySelector) (string, error) {
		in, err := r.Container(&v1.Pod{}, &v1.Container{Name: "app", Env: []v1.EnvVar{
			{Name: "V", ValueFrom: &v1.EnvVarSource{FileKeyRef: &ref}}, {Name: "W", Value: "<$(V)>"},
		}}, nil)
		return in.Env.Values["W"], err
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
		if _, err := value(v1.FileKeySelector{VolumeName: c.volume, Path: c.path, Key: c.key}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	for _, path := range []string{"env", "none"} {
		if got, err := value(v1.FileKeySelector{VolumeName: "config", Path: path, Key: "Z", Optional: new(true)}); err != nil || got != "<$(V)>" {
			t.Errorf("optional in %s: got %q, %v", path, got, err)
		}
	}
}

func TestAddressesAreTheSandboxsOrTheNodes(t *testing.T) {
	r := podenv.New(podenv.Config{NodeIPs: func() []string { return []string{"192.0.2.1"} }})
	c := &v1.Container{Name: "app", Env: []v1.EnvVar{
		{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
		{Name: "HOST", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.hostIP"}}},
	}}
	p := &v1.Pod{}
	if got, err := r.Container(p, c, []string{"10.0.0.2"}); err != nil || got.Env.Values["IP"] != "10.0.0.2" || got.Env.Values["HOST"] != "192.0.2.1" {
		t.Errorf("got %v, %v, want the sandbox's", got, err)
	}
	p.Spec.HostNetwork = true
	if got, err := r.Container(p, c, nil); err != nil || got.Env.Values["IP"] != "192.0.2.1" {
		t.Errorf("on the node's network: got %v, %v", got, err)
	}
}

// volumes are where they are, by name.
type volumes map[string]string

func (v volumes) Path(_ *v1.Pod, name string) (string, error) {
	if path, ok := v[name]; ok {
		return path, nil
	}
	return "", errors.New("no such volume")
}
