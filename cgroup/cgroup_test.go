package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

func list(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

func with(requests, limits v1.ResourceList) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: requests, Limits: limits}
}

func aPod(rs ...v1.ResourceRequirements) *v1.Pod {
	p := &v1.Pod{}
	p.UID = "0f-a1"
	for _, r := range rs {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: r})
	}
	return p
}

func TestParent(t *testing.T) {
	full := list("cpu", "1", "memory", "64Mi")
	for _, c := range []struct {
		driver Driver
		pod    *v1.Pod
		want   string
		path   string
	}{
		{Cgroupfs, aPod(with(full, full)), "/podd/kubepods/pod0f-a1", ""},
		{Cgroupfs, aPod(with(full, nil)), "/podd/kubepods/burstable/pod0f-a1", ""},
		{Cgroupfs, aPod(), "/podd/kubepods/besteffort/pod0f-a1", ""},
		{Systemd, aPod(with(full, full)), "podd-kubepods-pod0f_a1.slice", "/podd.slice/podd-kubepods.slice/podd-kubepods-pod0f_a1.slice"},
		{
			Systemd, aPod(), "podd-kubepods-besteffort-pod0f_a1.slice",
			"/podd.slice/podd-kubepods.slice/podd-kubepods-besteffort.slice/podd-kubepods-besteffort-pod0f_a1.slice",
		},
	} {
		got := Parent(c.driver, DefaultRoot, c.pod)
		if got != c.want {
			t.Errorf("%s, %s: got %s, want %s", c.driver, pod.QOSClass(c.pod), got, c.want)
		}
		if c.path != "" && slicePath(got) != c.path {
			t.Errorf("path of %s: got %s, want %s", got, slicePath(got), c.path)
		}
	}
}

func TestDetect(t *testing.T) {
	const v2 = "24 1 0:22 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n"
	const memory = "25 1 0:23 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	const unified = "26 1 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	const inContainer = "27 1 0:25 / /var/lib/x/rootfs/sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	for name, c := range map[string]struct {
		mounts  string
		systemd bool
		version Version
		driver  Driver
		count   int
	}{
		"v2, systemd":                {v2, true, V2, Systemd, 1},
		"v2, another init":           {v2, false, V2, Cgroupfs, 1},
		"v1, systemd":                {memory, true, V1, Cgroupfs, 1},
		"hybrid":                     {memory + unified, true, Hybrid, Cgroupfs, 2},
		"a container's do not count": {memory + inContainer, false, V1, Cgroupfs, 1},
	} {
		got, err := detect(strings.NewReader(c.mounts), c.systemd)
		if err != nil || got.Version != c.version || got.Driver != c.driver || got.Systemd != c.systemd || len(got.Mounts) != c.count {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	if _, err := detect(strings.NewReader("1 1 0:1 / / rw - ext4 /dev/sda rw\n"), true); err == nil || !strings.Contains(err.Error(), "mount -t cgroup2") {
		t.Errorf("no cgroups: got %v, want an error that says what to do", err)
	}
}

// TestRemoveOnRealHierarchies uses real cgroups of this machine, below a root
// of its own.
func TestRemoveOnRealHierarchies(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	facts, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	root := "/podd-test-cgroup/kubepods"
	tree := NewTree(facts, Cgroupfs, root, Settings{})
	made := []string{}
	t.Cleanup(func() {
		for _, dir := range slices.Backward(made) {
			_ = os.Remove(dir)
		}
	})
	mkdir := func(mount, rel string) string {
		dir := mount
		for part := range strings.SplitSeq(strings.Trim(rel, "/"), "/") {
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err == nil {
				made = append(made, dir)
			} else if !os.IsExist(err) {
				t.Skipf("cannot make a cgroup here: %v", err)
			}
		}
		return dir
	}
	for _, mount := range facts.Mounts {
		mkdir(mount, root+"/burstable/podgone/container")
		mkdir(mount, root+"/podother")
	}
	busy := mkdir(facts.Mounts[len(facts.Mounts)-1], root+"/besteffort/podbusy")

	if got, err := tree.Pods(); err != nil || !slices.Equal(got, []pod.UID{"busy", "gone", "other"}) {
		t.Fatalf("got %v, %v, want the three pods", got, err)
	}
	for range 2 { // the second time there is nothing left
		if err := tree.Remove(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := tree.Pods(); !slices.Equal(got, []pod.UID{"busy", "other"}) {
		t.Errorf("after removal: got %v", got)
	}

	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	if err := os.WriteFile(filepath.Join(busy, "cgroup.procs"), []byte(strconv.Itoa(sleep.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(t.Context(), "busy"); err == nil || !strings.Contains(err.Error(), "still in it") {
		t.Errorf("a busy group: got %v, want an error that says so", err)
	}
	if err := sleep.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process in the group did not survive: %v", err)
	}
	_ = sleep.Process.Kill()
	_ = sleep.Wait()
	if err := tree.RemoveRoot(t.Context()); err != nil {
		t.Error(err)
	}
	for _, mount := range facts.Mounts {
		if _, err := os.Stat(filepath.Join(mount, root)); !os.IsNotExist(err) {
			t.Errorf("in %s cgroups are left: %v", mount, err)
		}
	}
}

func TestSystemdSliceIsStoppedOnceEmpty(t *testing.T) {
	mount := t.TempDir()
	dir := filepath.Join(mount, slicePath("podd-kubepods-besteffort-poda_b.slice"))
	if err := os.MkdirAll(filepath.Join(dir, "cri-containerd-1.scope"), 0o755); err != nil {
		t.Fatal(err)
	}
	tree := NewTree(Facts{Mounts: []string{mount}}, Systemd, DefaultRoot, Settings{})
	fake := &fakeUnits{}
	tree.units = fake
	tree.unitDirs = []string{t.TempDir()}
	got, err := tree.Pods()
	if err != nil || len(got) != 1 || !Matches(got[0], "a-b") {
		t.Errorf("got %v, %v, want the pod a-b", got, err)
	}
	if err := tree.Remove(t.Context(), "a-b"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(fake.calls, []string{"stop podd-kubepods-besteffort-poda_b.slice"}) {
		t.Errorf("calls of systemd: got %v", fake.calls)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the group is still there: %v", err)
	}
	fake.calls = nil
	fake.stopped = func(name string) { // as systemd: it recreates the parents of what stops
		if err := os.MkdirAll(filepath.Join(mount, filepath.Dir(slicePath(name))), 0o755); err != nil {
			t.Error(err)
		}
	}
	if err := tree.RemoveRoot(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"stop podd-kubepods-besteffort.slice", "stop podd-kubepods-burstable.slice", "stop podd-kubepods.slice", "stop podd.slice"}
	if !slices.Equal(fake.calls, want) {
		t.Errorf("after RemoveRoot: got %q, want %q", fake.calls, want)
	}
}

func TestRemoveRejectsAPath(t *testing.T) {
	tree := NewTree(Facts{}, Cgroupfs, DefaultRoot, Settings{})
	for _, uid := range []pod.UID{"", "a/../..", "/"} {
		if err := tree.Remove(t.Context(), uid); err == nil {
			t.Errorf("UID %q: got no error", uid)
		}
	}
}
