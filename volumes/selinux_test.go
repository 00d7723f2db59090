package volumes

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/selinux"
)

// recordTmpfs has the mounter's tmpfs mounts recorded, and made without a label, which the
// kernel of this machine may not know.
func recordTmpfs(m *Mounter) (options func() []string) {
	var all []string
	labels := map[string]string{} // by directory
	for i := range m.kinds {
		if l, ok := m.kinds[i].driver.(*liveDriver); ok && l.memory != nil {
			l.memory.mountCall = func(source, target, kind string, flags uintptr, data string) error {
				var rest []string
				for o := range strings.SplitSeq(data, ",") {
					if !strings.HasPrefix(o, "context=") && !strings.HasSuffix(o, `"`) {
						rest = append(rest, o)
					}
				}
				err := unix.Mount(source, target, kind, flags, strings.Join(rest, ","))
				if err == nil {
					all = append(all, strings.TrimSuffix(data, ",noswap"))
					_, context, _ := strings.Cut(strings.TrimSuffix(data, ",noswap"), "context=")
					labels[target] = strings.Trim(context, `"`)
				}
				return err
			}
			l.memory.labelAt = func(path string) string { return labels[path] }
		}
	}
	return func() []string { slices.Sort(all); return all }
}

// TestFilesInMemoryAreMountedWithThePodsLabel: the runtime relabels only what is not mounted
// with the label. A memory emptyDir is the containers', and as in the kubelet.
func TestFilesInMemoryAreMountedWithThePodsLabel(t *testing.T) {
	const plain, labelled = "size=268435456", `size=268435456,context="system_u:object_r:container_file_t:s0:c1,c2"`
	level := func(s string) *v1.SELinuxOptions { return &v1.SELinuxOptions{Level: s} }
	recursive := v1.SELinuxChangePolicyRecursive
	for name, c := range map[string]struct {
		labels  *selinux.Labels
		options *v1.SELinuxOptions
		policy  *v1.PodSELinuxChangePolicy
		want    string
	}{
		"a level":                  {selinux.New("system_u:object_r:container_file_t:s0"), level("s0:c1,c2"), nil, labelled},
		"no level":                 {selinux.New("system_u:object_r:container_file_t:s0"), nil, nil, plain},
		"relabelled, as it wants":  {selinux.New("system_u:object_r:container_file_t:s0"), level("s0:c1,c2"), &recursive, plain},
		"no SELinux":               {nil, level("s0:c1,c2"), nil, plain},
		"a level that is no level": {selinux.New("system_u:object_r:container_file_t:s0"), level(`s0",size=1`), nil, plain},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMounter(t, newStore(aSecret("key", "a", "1"), aConfigMap("app", "a", "1")).into, func(o *Options) { o.SELinux = c.labels })
			options := recordTmpfs(m)
			p := aPod("a", fromSecret("s", "key"), fromPod("d", "app", "metadata.name"), projected("p", partSecret("key")), fromConfigMap("c", "app"), empty("e"))
			p.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: c.options, SELinuxChangePolicy: c.policy}
			p.Spec.Containers[0].VolumeMounts = p.Spec.InitContainers[0].VolumeMounts
			mustSetUp(t, m, p)
			if got, want := options(), []string{c.want, c.want, c.want}; !slices.Equal(got, want) {
				t.Errorf("mount(2): got %q, want %q", got, want)
			}
			for i, mount := range mustMounts(t, m, p) {
				inMemory := i < 3
				if got, want := mount.SELinuxRelabel, !inMemory || c.want == plain; got != want {
					t.Errorf("%s: relabelled: got %v, want %v", mount.ContainerPath, got, want)
				}
			}
			// One that an earlier podd has mounted without a label is relabelled.
			for i := range m.kinds {
				if l, ok := m.kinds[i].driver.(*liveDriver); ok && l.memory != nil {
					l.memory.labelAt = func(string) string { return "" }
				}
			}
			for _, mount := range mustMounts(t, m, p) {
				if !mount.SELinuxRelabel {
					t.Errorf("%s, mounted without a label: not relabelled", mount.ContainerPath)
				}
			}
			mustTearDown(t, m, "a")
		})
	}
}

// TestAnUnknownLabelDoesNotSwitchNoswapOff: the kernel's error is the same.
func TestAnUnknownLabelDoesNotSwitchNoswapOff(t *testing.T) {
	dir := t.TempDir()
	var calls []string
	m := &tmpfs{mountCall: func(_, _, _ string, _ uintptr, data string) error {
		calls = append(calls, data)
		if strings.Contains(data, "context=") {
			return unix.EINVAL
		}
		return nil
	}}
	if err := m.mount(dir, tmpfsOptions{size: 4096, label: "nonsense"}); err == nil {
		t.Error("got no error for a label that the kernel does not know")
	}
	if err := m.mount(dir, tmpfsOptions{size: 4096}); err != nil {
		t.Error(err)
	}
	if want := []string{`size=4096,context="nonsense",noswap`, `size=4096,context="nonsense"`, "size=4096,noswap"}; !slices.Equal(calls, want) {
		t.Errorf("got %q, want %q", calls, want)
	}
}

func TestAVolumeOfADriverThatMountedItWithTheLabelIsNotRelabelled(t *testing.T) {
	for labelled, want := range map[string]bool{"data": false, "other": true} {
		m := newMounter(t, func(o *Options) { o.CSI = &fakeCSI{labelled: labelled} })
		p := withMounts(aPod("a", ofCSI("data")), v1.VolumeMount{Name: "data", MountPath: "/data"})
		mustSetUp(t, m, p)
		if got := mustMounts(t, m, p)[0].SELinuxRelabel; got != want {
			t.Errorf("%s is mounted with a label: relabelled: got %v, want %v", labelled, got, want)
		}
		mustTearDown(t, m, "a")
	}
}
