package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/wipe"
)

// kubernetes/kubernetes#60987: cleanup deleted data behind mounts.
func TestIssue60987DataBehindAForeignMountSurvives(t *testing.T) {
	m := newMounter(t)
	data := tempDir(t)
	write(t, data+"/precious", "kept")
	mustSetUp(t, m, aPod("u1", empty("e")))
	inside := mkdir(t, m.PodDir("u1")+"/volumes/kubernetes.io~empty-dir/e/mnt")
	if err := unix.Mount(data, inside, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	mustTearDown(t, m, "u1")
	mustBe(t, data+"/precious", "kept")
	mustBeGone(t, m, "u1")
}

func TestIssue60987DataBehindAMountThatCannotBeUnmountedSurvives(t *testing.T) {
	m := newMounter(t)
	data := tempDir(t)
	write(t, data+"/precious", "kept")
	mustSetUp(t, m, aPod("u1", empty("e")))
	dir := m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/e"
	write(t, dir+"/own", "the pod's")
	if err := unix.Mount(data, mkdir(t, dir+"/mnt"), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	holder := hold(t, dir+"/mnt")
	if err := m.TearDown(t.Context(), "u1"); err != nil {
		t.Fatalf("a pending unmount must not block the pod: %v", err)
	}
	mustBe(t, data+"/precious", "kept")
	mustBe(t, dir+"/own", "the pod's") // an unmount that fails stops the deletion

	pending := m.PendingUnmounts()
	if len(pending) != 1 || pending[0].UID != "u1" || pending[0].Path != m.PodDir("u1") {
		t.Fatalf("got pending unmounts %+v", pending)
	}
	mustSay(t, errors.New(pending[0].Message), dir+"/mnt", fmt.Sprintf("process %d (sleep)", holder.Process.Pid), "working in")
	if uids, _ := m.Pods(); len(uids) != 1 {
		t.Errorf("the pod must still be listed, got %v", uids)
	}
	release(t, holder)
	runUntil(t, m, func() bool { return len(m.PendingUnmounts()) == 0 })
	mustBeGone(t, m, "u1")
	mustBe(t, data+"/precious", "kept")
}

func TestWhoWaitsForAPodsRemovalIsToldWhenNothingIsMounted(t *testing.T) {
	m := newMounter(t)
	mustSetUp(t, m, aPod("u1", empty("e", memory)))
	holder := hold(t, m.PodDir("u1")+"/volumes/kubernetes.io~empty-dir/e")
	if err := m.TearDown(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
	var told atomic.Int32
	m.OnceRemoved("u1", func() {
		mustBeGone(t, m, "u1")
		told.Add(1)
	})
	m.OnceRemoved("u2", func() { told.Add(10) }) // of which nothing was ever here
	if got := told.Load(); got != 10 {
		t.Errorf("got %d, want 10: the first is still mounted", got)
	}
	release(t, holder)
	runUntil(t, m, func() bool { return told.Load() == 11 })
	m.OnceRemoved("u1", func() { told.Add(100) })
	if got := told.Load(); got != 111 {
		t.Errorf("got %d, want 111", got)
	}
}

func TestIssue60987BindMountedFileSurvives(t *testing.T) {
	m := newMounter(t)
	data := tempDir(t)
	write(t, data+"/file", "kept")
	mustSetUp(t, m, aPod("u1"))
	point := m.PodDir("u1") + "/containers/point"
	write(t, point, "")
	if err := unix.Mount(data+"/file", point, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	err := wipe.Tree(t.Context(), m.dirs.Pods(), "u1")
	if _, ok := errors.AsType[*wipe.MountError](err); !ok {
		t.Errorf("wipe.Tree: got %v, want it to stop at the mount", err)
	}
	mustTearDown(t, m, "u1")
	mustBe(t, data+"/file", "kept")
	mustBeGone(t, m, "u1")
}

func TestIssue60987HostPathAndItsSubPathKeepTheirData(t *testing.T) {
	m := newMounter(t)
	data := tempDir(t)
	write(t, mkdir(t, data+"/sub")+"/file", "kept")
	p := withMounts(aPod("u1", host("h", data, v1.HostPathDirectory)),
		v1.VolumeMount{Name: "h", MountPath: "/a", SubPath: "sub"},
		v1.VolumeMount{Name: "h", MountPath: "/b", SubPath: "sub/file"})
	mustSetUp(t, m, p)
	mustMounts(t, m, p)
	mustTearDown(t, m, "u1")
	mustBe(t, data+"/sub/file", "kept")
	mustBeGone(t, m, "u1")
}

func TestLinksInAnEmptyDirAreDeletedNotFollowed(t *testing.T) {
	m := newMounter(t)
	data := tempDir(t)
	write(t, data+"/file", "kept")
	mustSetUp(t, m, aPod("u1", empty("e")))
	dir := m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/e"
	for name, to := range map[string]string{"dir": data, "file": data + "/file", "up": "../../../../.."} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	mustTearDown(t, m, "u1")
	mustBe(t, data+"/file", "kept")
	mustBeGone(t, m, "u1")
}

// kubernetes/kubernetes#65110: thousands of mounts stacked on one another.
func TestStackedMountsAllGo(t *testing.T) {
	m := newMounter(t)
	mustSetUp(t, m, aPod("u1", empty("tmp", memory)))
	dir := m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/tmp"
	for range 20 {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
	}
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

// kubernetes/kubernetes#51835: the mount table has resolved paths, the configuration has
// not.
func TestRootDirBehindASymlink(t *testing.T) {
	dir := tempDir(t)
	mkdir(t, dir+"/real")
	if err := os.Symlink("real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	m := newMounter(t, func(o *Options) { o.RootDir = dir + "/link/podd" })
	p := withMounts(aPod("u1", empty("tmp", memory)), v1.VolumeMount{Name: "tmp", MountPath: "/m", SubPath: "s"})
	for range 2 {
		mustSetUp(t, m, p)
		mustMounts(t, m, p)
	}
	if points, _ := mountsBelow(dir + "/real/podd/pods/u1"); len(points) != 2 {
		t.Errorf("got %v, want the tmpfs and its subPath", points)
	}
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

func TestTearDownOfNothingIsSuccess(t *testing.T) {
	m := newMounter(t)
	for range 2 {
		if err := m.TearDown(t.Context(), "never-seen"); err != nil {
			t.Error(err)
		}
	}
}

func TestOrphanOfAnEarlierPoddIsTornDownFromTheMountTable(t *testing.T) {
	m := newMounter(t)
	p := withMounts(aPod("u1", empty("tmp", memory), empty("disk")), v1.VolumeMount{Name: "tmp", MountPath: "/m", SubPath: "s"})
	mustSetUp(t, m, p)
	mustMounts(t, m, p)
	later, err := New(m.options, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	uids, err := later.Pods()
	if err != nil || len(uids) != 1 {
		t.Fatalf("got %v (%v)", uids, err)
	}
	if err := later.TearDown(t.Context(), uids[0]); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, later, "u1")
}

func TestPodThatComesBackWaitsForItsPendingUnmount(t *testing.T) {
	m := newMounter(t)
	p := aPod("u1", empty("tmp", memory))
	mustSetUp(t, m, p)
	dir := m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/tmp"
	write(t, dir+"/old", "of the last life")
	holder := hold(t, dir)
	mustTearDown(t, m, "u1")
	mustSay(t, ensure(t, m, p), "previous run", dir)
	release(t, holder)
	mustSetUp(t, m, p)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("an emptyDir starts empty, got %v (%v)", entries, err)
	}
	if len(m.PendingUnmounts()) > 0 {
		t.Errorf("pending unmounts left: %+v", m.PendingUnmounts())
	}
}

func TestImmutableFileIsNamedInThePendingUnmount(t *testing.T) {
	m := newMounter(t)
	mustSetUp(t, m, aPod("u1", empty("e")))
	file := m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/e/fixed"
	write(t, file, "x")
	if out, err := exec.Command("chattr", "+i", file).CombinedOutput(); err != nil {
		t.Skipf("chattr +i does not work here: %s", out)
	}
	unfix := func() { _ = exec.Command("chattr", "-i", file).Run() }
	t.Cleanup(unfix)
	mustTearDown(t, m, "u1")
	if d := m.PendingUnmounts(); len(d) != 1 || !strings.Contains(d[0].Message, file) {
		t.Errorf("got %+v, want a pending unmount that names %s", d, file)
	}
	unfix()
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

func TestTreeDeeperThanTheDescriptorLimitIsDeleted(t *testing.T) {
	m := newMounter(t)
	mustSetUp(t, m, aPod("u1", empty("e")))
	dir, err := unix.Open(m.PodDir("u1")+"/volumes/kubernetes.io~empty-dir/e", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if err := unix.Mkdirat(dir, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(dir, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(dir)
		if err != nil {
			t.Fatal(err)
		}
		dir = next
	}
	unix.Close(dir)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 300, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }()
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

func TestTearDownOfAWideTreeEndsWithItsContext(t *testing.T) {
	m := newMounter(t)
	mustSetUp(t, m, aPod("u1", empty("e")))
	for i := range 3000 {
		write(t, fmt.Sprintf("%s/volumes/kubernetes.io~empty-dir/e/%d", m.PodDir("u1"), i), "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.TearDown(ctx, "u1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	if len(m.PendingUnmounts()) > 0 {
		t.Error("an interrupted TearDown must not be pending: the caller retries")
	}
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
}

func TestMetricsCarryUpstreamsNames(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := New(Options{RootDir: tempDir(t)}, slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	mustSetUp(t, m, aPod("u1", empty("a"), empty("b")))
	err = testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP podd_volume_debts Pod directories that could not be removed yet, because something is still mounted or in use in them.
# TYPE podd_volume_debts gauge
podd_volume_debts 0
# HELP volume_manager_total_volumes Number of volumes in Volume Manager
# TYPE volume_manager_total_volumes gauge
volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="actual_state_of_world"} 2
volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="desired_state_of_world"} 2
`), "podd_volume_debts", "volume_manager_total_volumes")
	if err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(m.metrics.operations); n != 1 {
		t.Errorf("storage_operation_duration_seconds: got %d series, want 1", n)
	}
	mustTearDown(t, m, "u1")
	if n, err := testutil.GatherAndCount(reg, "volume_manager_total_volumes"); n != 0 || err != nil {
		t.Errorf("after the last pod: got %d series, %v", n, err)
	}
}

// hold starts a process that works in dir, so that it cannot be unmounted.
func hold(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "600")
	c.Dir = dir
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

func release(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // killed
}

// runUntil runs Run until done; the first retry is after two seconds.
func runUntil(t *testing.T, m *Mounter, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	for !done() && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	if ctx.Err() != nil {
		t.Error("Run did not finish the unmount within 30 s")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run: got %v", err)
	}
}

func BenchmarkPodWithoutVolumes(b *testing.B) {
	m, err := New(Options{RootDir: b.TempDir()}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		uid := fmt.Sprint("u", i)
		if err := ensure(b, m, aPod(uid)); err != nil {
			b.Fatal(err)
		}
		if err := m.TearDown(b.Context(), pod.UID(uid)); err != nil {
			b.Fatal(err)
		}
	}
}

// Whatever the mount table shows, the deletion itself stops at a mount, even of the same
// file system.
func TestIssue60987DeletionNeverCrossesAMount(t *testing.T) {
	m := newMounter(t)
	for name, data := range map[string]string{"same file system": mkdir(t, m.dirs.Pods()+"/../data"), "another": mountedTmpfs(t)} {
		write(t, data+"/file", "kept")
		point := mkdir(t, m.PodDir("u1")+"/containers/point")
		if err := unix.Mount(data, point, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		err := wipe.Tree(t.Context(), m.dirs.Pods(), "u1")
		if crossing, ok := errors.AsType[*wipe.MountError](err); !ok || crossing.Path != point {
			t.Errorf("%s: got %v, want it to stop at %s", name, err, point)
		}
		mustBe(t, data+"/file", "kept")
		if err := unix.Unmount(point, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func mountedTmpfs(t *testing.T) string {
	t.Helper()
	dir := tempDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A completed pod is shown with its termination messages until its manifest is removed.
func TestReleaseFreesMemoryAndKeepsTerminationMessages(t *testing.T) {
	m := newMounter(t)
	mustSetUp(t, m, aPod("u1", empty("mem", memory), empty("disk")))
	dir := m.PodDir("u1")
	write(t, dir+"/volumes/kubernetes.io~empty-dir/mem/data", "in memory")
	write(t, dir+"/volumes/kubernetes.io~empty-dir/disk/data", "on disk")
	mkdir(t, dir+"/containers/web")
	write(t, dir+"/containers/web/1", "bye")
	for range 2 { // may be repeated
		if err := m.Release(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
	}
	if points, err := mountsBelow(dir); err != nil || len(points) != 0 {
		t.Errorf("mounted: %v, %v, want nothing", points, err)
	}
	mustBe(t, dir+"/containers/web/1", "bye")
	mustBe(t, dir+"/volumes/kubernetes.io~empty-dir/disk/data", "on disk")
	if _, err := os.Lstat(dir + "/volumes/kubernetes.io~empty-dir/mem"); !os.IsNotExist(err) {
		t.Errorf("the directory of the volume in memory is still there (%v)", err)
	}
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
	if err := m.Release(t.Context(), "u1"); err != nil {
		t.Errorf("of a pod without anything: got %v, want nil", err)
	}
}

// It deletes nothing that is mounted in them.
func TestDiscardDeletesEmptyDirs(t *testing.T) {
	m, owners := newMounter(t), tempDir(t)
	write(t, owners+"/canary", "not podd's")
	mustSetUp(t, m, aPod("u1", empty("mem", memory), empty("disk"), host("h", owners, v1.HostPathDirectory)))
	dir := m.PodDir("u1")
	scratch := dir + "/volumes/kubernetes.io~empty-dir"
	write(t, mkdir(t, scratch+"/disk/a")+"/data", "too much")
	write(t, mkdir(t, dir+"/containers/web")+"/1", "bye")
	inside := mkdir(t, scratch+"/disk/inside")
	if err := unix.Mount(owners, inside, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	busy, err := os.Open(inside) // keeps it from being unmounted
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Discard(t.Context(), "u1"); err == nil {
		t.Error("got no error, but something is still mounted there")
	}
	mustBe(t, scratch+"/disk/a/data", "too much")
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // may be repeated
		if err := m.Discard(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(scratch); !os.IsNotExist(err) {
		t.Errorf("the emptyDirs still exist (%v)", err)
	}
	mustBe(t, owners+"/canary", "not podd's")
	mustBe(t, dir+"/containers/web/1", "bye")
	mustSetUp(t, m, aPod("u1", empty("disk"))) // podd retry
	if _, err := os.Stat(scratch + "/disk/a"); !os.IsNotExist(err) {
		t.Errorf("the next run starts with files of the last one (%v)", err)
	}
	mustTearDown(t, m, "u1")
	mustBeGone(t, m, "u1")
	if err := m.Discard(t.Context(), "u1"); err != nil {
		t.Errorf("of a pod without anything: got %v, want nil", err)
	}
}
