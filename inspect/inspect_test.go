package inspect_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"podd/inspect"
	"podd/internal/mask"
)

// recorded returns a container of testdata/pod.yaml, and what containerd 2.4
// reported of it.
func recorded(t *testing.T, container string) inspect.Input {
	t.Helper()
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict(read("pod.yaml"), p); err != nil {
		t.Fatal(err)
	}
	var info struct {
		Spec *specs.Spec `json:"runtimeSpec"`
	}
	if err := json.Unmarshal(read("containerd-"+container+".json"), &info); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(p.Spec.Containers, func(c v1.Container) bool { return c.Name == container })
	return inspect.Input{Pod: p, Container: &p.Spec.Containers[at], Spec: info.Spec,
		IsHostNamespace: func(specs.LinuxNamespace) (own, known bool) { return false, true }}
}

func differing(rows []inspect.Row) []string {
	var names []string
	for _, r := range rows {
		if r.Differs {
			names = append(names, r.Section+": "+r.Name)
		}
	}
	return names
}

// TestWhatARealContainerdWasGivenIsWhatThePodAsksFor.
func TestWhatARealContainerdWasGivenIsWhatThePodAsksFor(t *testing.T) {
	for _, container := range []string{"bound", "privileged"} {
		rows := inspect.Compare(recorded(t, container))
		for _, r := range rows {
			if r.Differs {
				t.Errorf("%s: %+v", container, r)
			}
		}
		if len(rows) < 30 {
			t.Errorf("%s: got %d rows", container, len(rows))
		}
	}
}

func of[T any](v T) *T { return &v }

// TestEachDifferenceIsFound, on either side, in its own row and in no other.
func TestEachDifferenceIsFound(t *testing.T) {
	type input = inspect.Input
	sc := func(in *input) *v1.SecurityContext { return in.Container.SecurityContext }
	for want, change := range map[string]func(in *input){
		"process: command":    func(in *input) { in.Spec.Process.Args[2] = "other" },
		"process: workingDir": func(in *input) { in.Spec.Process.Cwd = "/" },
		"process: runAsUser":  func(in *input) { sc(in).RunAsUser = of(int64(5)) },
		"process: runAsGroup": func(in *input) { in.Spec.Process.User.GID = 1 },
		"process: groups":     func(in *input) { in.Pod.Spec.SecurityContext.SupplementalGroups = []int64{4000} },
		"process: tty":        func(in *input) { in.Container.TTY = true },
		"privileges: capabilities": func(in *input) {
			in.Spec.Process.Capabilities.Bounding = append(in.Spec.Process.Capabilities.Bounding, "CAP_SYS_ADMIN")
		},
		"privileges: allowPrivilegeEscalation": func(in *input) { in.Spec.Process.NoNewPrivileges = false },
		"privileges: readOnlyRootFilesystem":   func(in *input) { in.Spec.Root.Readonly = false },
		"privileges: seccompProfile":           func(in *input) { in.Spec.Linux.Seccomp = nil },
		"privileges: appArmorProfile": func(in *input) {
			sc(in).AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
		},
		"privileges: procMount: masked":    func(in *input) { in.Spec.Linux.MaskedPaths = nil },
		"privileges: procMount: read-only": func(in *input) { in.Spec.Linux.ReadonlyPaths = nil },
		"namespaces: pid":                  func(in *input) { in.Pod.Spec.ShareProcessNamespace = nil },
		"namespaces: ipc":                  func(in *input) { in.Pod.Spec.HostIPC = true },
		"namespaces: user":                 func(in *input) { in.Pod.Spec.HostUsers = of(false) },
		"cgroup: path":                     func(in *input) { in.Spec.Linux.CgroupsPath = "/system.slice/x" },
		"cgroup: requests.cpu":             func(in *input) { in.Spec.Linux.Resources.CPU.Shares = of(uint64(2)) },
		"cgroup: limits.cpu":               func(in *input) { in.Spec.Linux.Resources.CPU.Quota = nil },
		"cgroup: limits.memory":            func(in *input) { in.Container.Resources.Limits[v1.ResourceMemory] = resource.MustParse("64Mi") },
		"mounts: /again":                   func(in *input) { in.Container.VolumeMounts[1].ReadOnly = false },
		"mounts: /out":                     func(in *input) { in.Container.VolumeMounts[0].MountPropagation = of(v1.MountPropagationBidirectional) },
		"mounts: /scratch/sub": func(in *input) {
			in.Container.VolumeMounts[2].RecursiveReadOnly, in.Container.VolumeMounts[2].ReadOnly = of(v1.RecursiveReadOnlyEnabled), true
		},
		"mounts: /lost": func(in *input) {
			in.Container.VolumeMounts = append(in.Container.VolumeMounts, v1.VolumeMount{Name: "out", MountPath: "/lost/"})
		},
		"devices: /dev/block": func(in *input) {
			in.Container.VolumeDevices = []v1.VolumeDevice{{Name: "out", DevicePath: "/dev/block"}}
		},
		"environment: LITERAL": func(in *input) { in.Container.Env[0].Value = "changed" },
		"environment: MISSING": func(in *input) { in.Container.Env = append(in.Container.Env, v1.EnvVar{Name: "MISSING", Value: "x"}) },
	} {
		in := recorded(t, "bound")
		change(&in)
		if got := differing(inspect.Compare(in)); !slices.Equal(got, []string{want}) {
			t.Errorf("want %q to differ, got %q", want, got)
		}
	}
}

// TestAVolumeThatIsAlwaysReadOnlyNeedsNoWordInTheManifest: it differs where the runtime
// was given it writable.
func TestAVolumeThatIsAlwaysReadOnlyNeedsNoWordInTheManifest(t *testing.T) {
	for name, c := range map[string]struct {
		source v1.VolumeSource
		always bool
	}{
		"configMap":          {v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, true},
		"secret":             {v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}, true},
		"projected":          {v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}, true},
		"downwardAPI":        {v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}, true},
		"image":              {v1.VolumeSource{Image: &v1.ImageVolumeSource{}}, true},
		"a read-only claim":  {v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ReadOnly: true}}, true},
		"a claim":            {v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}, false},
		"a read-only driver": {v1.VolumeSource{CSI: &v1.CSIVolumeSource{ReadOnly: of(true)}}, true},
		"a driver":           {v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}, false},
		"emptyDir":           {v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, false},
	} {
		for _, given := range []string{"ro", "rw"} {
			in := recorded(t, "bound")
			for i := range in.Pod.Spec.Volumes {
				if v := &in.Pod.Spec.Volumes[i]; v.Name == "out" {
					v.VolumeSource = c.source
				}
			}
			for i := range in.Spec.Mounts {
				if m := &in.Spec.Mounts[i]; m.Destination == "/out" {
					m.Options = []string{"rbind", "rprivate", given}
				}
			}
			var want []string
			if c.always != (given == "ro") {
				want = []string{"mounts: /out"}
			}
			if got := differing(inspect.Compare(in)); !slices.Equal(got, want) {
				t.Errorf("%s given %s: got %q to differ, want %q", name, given, got, want)
			}
		}
	}
}

// TestWhatThePodDoesNotAskForDoesNotDiffer: settings left to the image and the
// runtime, and optional variables.
func TestWhatThePodDoesNotAskForDoesNotDiffer(t *testing.T) {
	in := recorded(t, "bound")
	in.Container.Command, in.Container.WorkingDir = nil, ""
	in.Container.SecurityContext, in.Pod.Spec.SecurityContext = nil, nil
	in.Container.Env = []v1.EnvVar{{Name: "NONE", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Optional: of(true)}}}}
	in.IsHostNamespace = nil
	if got := differing(inspect.Compare(in)); len(got) > 0 {
		t.Errorf("got %q, want nothing", got)
	}
}

// TestNoValueOfASecretIsInTheResult, however it came into the container: as a
// variable of its own, in another one, in the command line, in a path, or with a
// whole Secret.
func TestNoValueOfASecretIsInTheResult(t *testing.T) {
	const secret = "not-a-literal-secret"
	for name, change := range map[string]func(in *inspect.Input){
		"a variable from a key": func(in *inspect.Input) {
			in.Container.Env[1] = v1.EnvVar{Name: "TOKEN", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "token"}}}
		},
		"all of a Secret": func(in *inspect.Input) {
			in.Container.Env = slices.Delete(in.Container.Env, 1, 2)
			in.Container.EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{}}}
		},
		"a variable in a variable": func(in *inspect.Input) {
			in.Container.Env[1].Value = "$(LITERAL)"
			in.Container.Env[2].Value = "user:$(TOKEN)"
			in.Spec.Process.Env[4] = "DERIVED=user:" + secret
		},
		"a path": func(in *inspect.Input) {
			in.Container.Env[1] = v1.EnvVar{Name: "TOKEN", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "token"}}}
			in.Container.VolumeMounts[2].SubPathExpr = "$(TOKEN)/x"
			in.Spec.Mounts[8].Source = "/srv/" + secret + "/x"
		},
		"a command that the manifest does not have": func(in *inspect.Input) {
			in.Container.Env[1] = v1.EnvVar{Name: "TOKEN", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "token"}}}
			in.Spec.Process.Args = []string{secret}
		},
		"a word that the manifest does not have": func(in *inspect.Input) {
			in.Container.Env[1] = v1.EnvVar{Name: "TOKEN", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "token"}}}
			in.Container.Command[2] = "another"
		},
		"a runtime's annotations and hooks": func(in *inspect.Input) {
			in.Container.Env[1] = v1.EnvVar{Name: "TOKEN", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "token"}}}
			in.Spec.Annotations["io.kubernetes.cri-o.Cmd"] = "sh -c echo " + secret
			in.Spec.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/hook", Env: []string{"TOKEN=" + secret}}}}
		},
	} {
		in := recorded(t, "bound")
		change(&in)
		before, _ := json.Marshal(in.Spec)
		answer := inspect.Container{Rows: inspect.Compare(in), Spec: inspect.Masked(in)}
		text, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), secret) {
			t.Errorf("%s: the result has it: %s", name, text)
		}
		if !slices.Contains(answer.Spec.Process.Env, "TOKEN="+mask.Value) {
			t.Errorf("%s: got %q", name, answer.Spec.Process.Env)
		}
		if after, _ := json.Marshal(in.Spec); string(after) != string(before) {
			t.Errorf("%s: masking changed its input", name)
		}
	}
}

// TestWhatTheManifestHasLiterallyIsShown, and nothing else of the environment: not
// even values from the image or a field.
func TestWhatTheManifestHasLiterallyIsShown(t *testing.T) {
	in := recorded(t, "bound")
	got := inspect.Masked(in)
	want := []string{"PATH=<masked>", "HOSTNAME=<masked>", "LITERAL=shown", "TOKEN=not-a-literal-secret", "DERIVED=user:$(WHO)", "WHO=<masked>"}
	if !slices.Equal(got.Process.Env, want) {
		t.Errorf("got %q, want %q", got.Process.Env, want)
	}
	if !slices.Equal(got.Process.Args, in.Spec.Process.Args) {
		t.Errorf("got %q, want %q", got.Process.Args, in.Spec.Process.Args)
	}
	in.Container.Env[1].ValueFrom = &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{}}
	if got := inspect.Masked(in).Process.Args[2]; !strings.HasPrefix(got, "echo <masked> > /out/bound; trap") {
		t.Errorf("a word with a variable: got %q", got)
	}
}

// TestAReferenceToAVariableOfTheImageStaysAsItIs: the pod does not have it, unless
// its envFrom does.
func TestAReferenceToAVariableOfTheImageStaysAsItIs(t *testing.T) {
	in := recorded(t, "bound")
	in.Container.Env[1].Value, in.Spec.Process.Env[3] = "$(PATH):/x", "TOKEN=$(PATH):/x"
	in.Container.Command[1], in.Spec.Process.Args[1] = "$(HOSTNAME)", "$(HOSTNAME)"
	in.Container.Command[2], in.Spec.Process.Args[2] = "a", "a"
	if got := differing(inspect.Compare(in)); len(got) > 0 {
		t.Errorf("got %q", got)
	}
	if got := inspect.Masked(in).Process; got.Args[1] != "$(HOSTNAME)" || got.Env[3] != "TOKEN=$(PATH):/x" {
		t.Errorf("got %q, %q", got.Args, got.Env)
	}
	in.Container.EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{}}}
	in.Spec.Process.Args[1] = "inspect-vm"
	if got := differing(inspect.Compare(in)); len(got) > 0 {
		t.Errorf("with an object: got %q", got)
	}
	if got := inspect.Masked(in).Process.Args[1]; got != mask.Value {
		t.Errorf("with an object: got %q", got)
	}
}

// TestASpecificationThatLacksEverythingIsCompared: a runtime may report anything.
func TestASpecificationThatLacksEverythingIsCompared(t *testing.T) {
	in := recorded(t, "bound")
	in.Spec = &specs.Spec{}
	if rows := inspect.Compare(in); len(differing(rows)) < 10 {
		t.Errorf("got %v", rows)
	}
	inspect.Masked(in)
}
