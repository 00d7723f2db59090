package volumes

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podd/internal/pod"
)

// newMounter returns a Mounter on a root directory of the test's own; whatever the test
// leaves mounted there is unmounted at its end.
func newMounter(t *testing.T, change ...func(*Options)) *Mounter {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	o := Options{RootDir: tempDir(t), NodeMemory: 1 << 30}
	for _, c := range change {
		c(&o)
	}
	m, err := New(o, slog.New(slog.NewTextHandler(io.Discard, nil)), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// tempDir is t.TempDir with its links resolved; everything mounted there is unmounted
// before it is deleted.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		points, err := mountsBelow(dir)
		if err != nil {
			t.Error(err)
		}
		for _, p := range points {
			if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				t.Errorf("unmount %s: %v", p, err)
			}
		}
	})
	return dir
}

// aPod returns a pod with a container that mounts nothing, and one that has all of its
// volumes.
func aPod(uid string, volumes ...v1.Volume) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: types.UID(uid), Labels: map[string]string{"app": "shop"}},
		Spec:       v1.PodSpec{Volumes: volumes, Containers: []v1.Container{{Name: "c"}}},
	}
	use(p)
	return p
}

// use has an init container use all of the pod's volumes.
func use(p *v1.Pod) {
	all := v1.Container{Name: "all"}
	for i := range p.Spec.Volumes {
		all.VolumeMounts = append(all.VolumeMounts, v1.VolumeMount{Name: p.Spec.Volumes[i].Name, MountPath: "/" + p.Spec.Volumes[i].Name})
	}
	if len(p.Spec.Volumes) > 0 {
		p.Spec.InitContainers = []v1.Container{all}
	}
}

func empty(name string, change ...func(*v1.EmptyDirVolumeSource)) v1.Volume {
	source := &v1.EmptyDirVolumeSource{}
	for _, c := range change {
		c(source)
	}
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: source}}
}

func memory(s *v1.EmptyDirVolumeSource) { s.Medium = v1.StorageMediumMemory }

func host(name, path string, kind v1.HostPathType) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

func withMounts(p *v1.Pod, mounts ...v1.VolumeMount) *v1.Pod {
	p.Spec.Containers[0].VolumeMounts = mounts
	return p
}

func mustSetUp(t *testing.T, m *Mounter, p *v1.Pod) {
	t.Helper()
	if err := ensure(t, m, p); err != nil {
		t.Fatalf("Ensure: %v", err)
	}
}

// ensure calls Ensure until the pod's volumes are ready or have failed.
func ensure(t testing.TB, m *Mounter, p *v1.Pod) error {
	t.Helper()
	for {
		state, err := m.Ensure(t.Context(), p)
		if err != nil || state.Ready {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func mustMounts(t *testing.T, m *Mounter, p *v1.Pod) []pod.Mount {
	t.Helper()
	mounts, err := mountsOf(m, p)
	if err != nil {
		t.Fatalf("Mounts: %v", err)
	}
	return mounts
}

// mountsOf calls Mounts for a pod's first container as the worker does, again while it
// takes longer than hangTimeout: on a machine that is busy nothing need hang for that.
func mountsOf(m *Mounter, p *v1.Pod) ([]pod.Mount, error) {
	for deadline := time.Now().Add(time.Minute); ; {
		mounts, err := m.Mounts(p, &p.Spec.Containers[0], subPaths(p))
		_, late := errors.AsType[*hungError](err)
		if !late && !errors.Is(err, errHangTimeout) || time.Now().After(deadline) {
			return mounts, err
		}
	}
}

// subPaths returns the subPaths of the pod's first container, which has no expressions.
func subPaths(p *v1.Pod) []string {
	var out []string
	for _, m := range p.Spec.Containers[0].VolumeMounts {
		out = append(out, m.SubPath)
	}
	return out
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustBe(t *testing.T, path, text string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != text {
		t.Errorf("%s: got %q (%v), want %q", path, got, err, text)
	}
}

func mustTearDown(t *testing.T, m *Mounter, uid pod.UID) {
	t.Helper()
	if err := m.TearDown(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
}

// mustBeGone checks that nothing of the pod is left: no directory, no mount, nothing pending.
func mustBeGone(t *testing.T, m *Mounter, uid string) {
	t.Helper()
	if _, err := os.Lstat(m.PodDir(pod.UID(uid))); !os.IsNotExist(err) {
		t.Errorf("the pod's directory is still there (%v)", err)
	}
	if points, err := mountsBelow(m.PodDir(pod.UID(uid))); err != nil || len(points) > 0 {
		t.Errorf("still mounted: %v (%v)", points, err)
	}
	if pending := m.PendingUnmounts(); len(pending) > 0 {
		t.Errorf("pending unmounts left: %+v", pending)
	}
}

func mustSay(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one that says %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %q, want it to say %q", err, w)
		}
	}
}
