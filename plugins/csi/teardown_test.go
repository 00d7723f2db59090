package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// Each time TearDown says why, and does the rest once the reason is gone.
func TestATearDownThatFailsIsFinishedLater(t *testing.T) {
	refuse := func(f *fake, method string) func() {
		f.on(method, func(context.Context) error { return status.Error(codes.Internal, "busy") })
		return func() { f.on(method, nil) }
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, n *testNode, f *fake, v pod.CSIVolume) (repair func())
		want  string
		calls string // meanwhile
		after string
	}{
		"the driver does not unpublish it": {func(_ *testing.T, _ *testNode, f *fake, _ pod.CSIVolume) func() {
			return refuse(f, "NodeUnpublishVolume")
		}, "Unmounter.TearDownAt failed: NodeUnpublishVolume: rpc error: code = Internal desc = busy", "Unpublish", "Unpublish Unstage"},
		"the driver does not unstage it": {func(_ *testing.T, _ *testNode, f *fake, _ pod.CSIVolume) func() {
			return refuse(f, "NodeUnstageVolume")
		}, "attacher.UnmountDevice failed: NodeUnstageVolume: rpc error: code = Internal desc = busy", "Unpublish Unstage", "Unpublish Unstage"},
		"the driver leaves a file where it was staged": {func(t *testing.T, n *testNode, _ *fake, v pod.CSIVolume) func() {
			left := filepath.Join(n.paths(v).staging, "left")
			mustWrite(t, left, "")
			return func() { _ = os.Remove(left) }
		}, driverName + " has left something behind: remove ", "Unpublish Unstage", "Unpublish Unstage"},
		"a file is beside where it was staged": {func(t *testing.T, n *testNode, _ *fake, v pod.CSIVolume) func() {
			left := filepath.Join(n.paths(v).stagingRecordDir, "left")
			mustWrite(t, left, "")
			return func() { _ = os.Remove(left) }
		}, "directory not empty", "Unpublish Unstage", "Unpublish"},
		"another pod's record cannot be read: it may be a user": {func(t *testing.T, n *testNode, _ *fake, _ pod.CSIVolume) func() {
			other := filepath.Join(n.volumeDir("other", "pv"), recordFile)
			mustWrite(t, other, "{")
			return func() { _ = os.Remove(other) }
		}, "does not say which volume it was", "", "Unpublish Unstage"},
		"the record of where it is staged cannot be read": {func(t *testing.T, n *testNode, _ *fake, v pod.CSIVolume) func() {
			path := filepath.Join(n.paths(v).stagingRecordDir, recordFile)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			mustWrite(t, path, "{")
			return func() { mustWrite(t, path, string(text)) }
		}, "does not say which volume it was", "", "Unpublish Unstage"},
		"the record cannot be removed": {func(t *testing.T, n *testNode, f *fake, v pod.CSIVolume) func() {
			path := filepath.Join(v.Dir, recordFile)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f.on("NodeUnpublishVolume", func(context.Context) error { // a directory that is not empty
				return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o750))
			})
			return func() {
				f.on("NodeUnpublishVolume", nil)
				_ = os.RemoveAll(path)
				mustWrite(t, path, string(text))
			}
		}, "remove ", "Unpublish Unstage", "Unpublish"},
		"another call for the volume hangs": {func(t *testing.T, n *testNode, _ *fake, _ pod.CSIVolume) func() {
			unlock, err := n.locks.Lock(t.Context(), driverName+"^h")
			if err != nil {
				t.Fatal(err)
			}
			n.timeout = 50 * time.Millisecond
			return func() { unlock(); n.timeout = callTimeout }
		}, "kubernetes.io/csi: another call for the volume is still in progress: context deadline exceeded", "", "Unpublish Unstage"},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := withDriver(t, stages)
			v := n.persistent("a", driverName, "h")
			n.mustSetUp(v)
			repair := c.spoil(t, n, f, v)
			if err := n.TearDown(t.Context(), v.Dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			calls := append([]string{"Stage", "Publish"}, strings.Fields(c.calls)...)
			wantCalls(t, f, calls...)
			repair()
			n.mustTearDown(v)
			wantCalls(t, f, append(calls, strings.Fields(c.after)...)...)
			if _, err := os.Lstat(n.paths(v).staging); !os.IsNotExist(err) {
				t.Errorf("it is staged still (%v)", err)
			}
		})
	}
}

func TestARecordThatIsGoneAlreadyIsNoError(t *testing.T) {
	n, f := withDriver(t)
	v := n.persistent("a", driverName, "h")
	n.mustSetUp(v)
	f.on("NodeUnpublishVolume", func(context.Context) error { return os.Remove(filepath.Join(v.Dir, recordFile)) })
	n.mustTearDown(v)
	wantCalls(t, f, "Publish", "Unpublish")
}

func TestAFileBesideAPublishedVolumeIsKept(t *testing.T) {
	n, f := withDriver(t)
	v := n.persistent("a", driverName, "h")
	n.mustSetUp(v)
	other := filepath.Join(v.Dir, "other")
	mustWrite(t, other, "precious")
	if err := n.TearDown(t.Context(), v.Dir); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("got %v, want that the directory is not empty", err)
	}
	wantCalls(t, f, "Publish", "Unpublish")
	if text, err := os.ReadFile(other); err != nil || string(text) != "precious" {
		t.Errorf("%s has %q now (%v)", other, text, err)
	}
}

// Its record may be lost: nobody knows which driver has to unpublish it.
func TestAVolumeWithoutARecordIsKept(t *testing.T) {
	n := newNode(t, "")
	v := n.persistent("a", driverName, "h")
	data := filepath.Join(n.Path(v), "data")
	mustWrite(t, data, "precious")
	if err := n.TearDown(t.Context(), v.Dir); !errors.Is(err, unix.ENOTEMPTY) || !strings.HasPrefix(err.Error(), "kubernetes.io/csi: an unknown driver has left something behind: ") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(data); err != nil || string(text) != "precious" {
		t.Errorf("%s has %q now (%v)", data, text, err)
	}
}

func TestATearDownWaitsNoLongerThanItsContext(t *testing.T) {
	n, f := withDriver(t)
	v := n.persistent("a", driverName, "h")
	n.mustSetUp(v)
	release := make(chan struct{})
	f.on("NodeUnpublishVolume", func(context.Context) error { <-release; return nil })
	why := errors.New("podd ends")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := n.TearDown(ctx, v.Dir); !errors.Is(err, why) {
		t.Errorf("got %v, want the context's cause", err)
	}
	close(release)
	if uid := <-n.woken; uid != pod.UID("a") { // the call has gone on
		t.Errorf("woke %s", uid)
	}
	wantCalls(t, f, "Publish", "Unpublish")
}

// Whoever waits for the outcome gets it, and needs no other sync.
func TestAPodIsNotWokenForATearDownThatItWaitsFor(t *testing.T) {
	n, f := withDriver(t)
	v := n.persistent("a", driverName, "h")
	n.mustSetUp(v)
	n.mustTearDown(v)
	n.mustSetUp(v)
	begun, release := make(chan struct{}), make(chan struct{})
	f.on("NodeUnpublishVolume", func(context.Context) error { close(begun); <-release; return nil })
	n.tearDownWait = time.Millisecond
	if err := n.TearDown(t.Context(), v.Dir); err == nil {
		t.Fatal("it did not wait")
	}
	<-begun
	n.tearDownWait = time.Minute
	joined := make(chan error)
	go func() { joined <- n.TearDown(t.Context(), v.Dir) }()
	eventually(t, "the second waits for the call of the first", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.tearDowns[v.Dir] != nil && !n.tearDowns[v.Dir].abandoned
	})
	close(release)
	if err := <-joined; err != nil {
		t.Errorf("got %v", err)
	}
	if len(n.woken) > 0 {
		t.Errorf("woke %s", <-n.woken)
	}
	// Nor for one that fails: the next attempt is the pod's own.
	n.mustSetUp(v)
	f.on("NodeUnpublishVolume", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	n.tearDownWait, n.timeout = time.Millisecond, 20*time.Millisecond
	if err := n.TearDown(t.Context(), v.Dir); err == nil {
		t.Error("it was torn down")
	}
	eventually(t, "the call ends", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return len(n.tearDowns) == 0 })
	if len(n.woken) > 0 {
		t.Errorf("after a failure: woke %s", <-n.woken)
	}
	n.timeout = callTimeout
	f.on("NodeUnpublishVolume", nil)
	n.tearDownWait = time.Minute
	n.mustTearDown(v)
}

// Its teardown can go on when that registers, and not before.
func TestAPodStillWaitsForADriverWhenAnothersVolumeIsTornDown(t *testing.T) {
	n, f := withDriver(t)
	<-f.status
	other := newFake(t, "other.example.com").serve().register(n)
	n.has(other.name)
	v, w := n.persistent("a", driverName, "h"), n.persistent("a", other.name, "h")
	w.Name, w.Dir = "other", n.volumeDir("a", "other")
	n.mustSetUp(v)
	n.mustSetUp(w)
	f.stop()
	eventually(t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 1 })
	if err := n.TearDown(t.Context(), v.Dir); err == nil {
		t.Fatal("it was torn down without its driver")
	}
	n.mustTearDown(w)
	f.serve().register(n)
	<-f.status // sent after pods are woken
	if len(n.woken) != 1 {
		t.Fatalf("the pod was woken %d times, want once", len(n.woken))
	}
	n.mustTearDown(v)
	f.stop()
	eventually(t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 1 })
	f.serve().register(n)
	<-f.status
	if len(n.woken) != 1 {
		t.Errorf("the pod was woken again after its end")
	}
}

// It has nothing left that it could wait for.
func TestAPodThatIsTornDownIsNotWokenForItsDriver(t *testing.T) {
	n, f := withDriver(t)
	<-f.status
	v := n.persistent("a", driverName, "h")
	f.on("NodePublishVolume", func(context.Context) error { return status.Error(codes.InvalidArgument, "no") })
	if _, err := n.SetUp(t.Context(), v); err == nil {
		t.Fatal("it was set up")
	}
	f.on("NodeGetCapabilities", func(context.Context) error { return status.Error(codes.Unavailable, "starting") })
	if _, err := n.SetUp(t.Context(), v); err == nil {
		t.Fatal("it was set up")
	}
	n.mustTearDown(v)
	f.stop()
	eventually(t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 0 })
	f.serve().register(n)
	<-f.status
	if len(n.woken) > 0 {
		t.Errorf("woke %s", <-n.woken)
	}
}

// Its devices are below one directory, and each is unpublished by itself.
func TestPodsThatShareABlockVolume(t *testing.T) {
	n, f := withDriver(t, stages)
	block := v1.PersistentVolumeBlock
	a, b := n.persistent("a", driverName, "h"), n.persistent("b", driverName, "h")
	files := n.persistent("c", driverName, "h") // the same handle, not as a device: staged elsewhere
	for _, v := range []pod.CSIVolume{a, b} {
		v.Persistent.Spec.VolumeMode = &block
		n.mustSetUp(v)
	}
	n.mustSetUp(files)
	n.mustTearDown(a)
	if _, err := os.Lstat(n.Path(b)); err != nil {
		t.Errorf("the other pod's device: %v", err)
	}
	n.mustTearDown(b)
	if _, err := os.Lstat(filepath.Dir(n.paths(b).stagingRecordDir)); !os.IsNotExist(err) {
		t.Errorf("where it was staged is still there (%v)", err)
	}
	n.mustTearDown(files)
	wantCalls(t, f, "Stage", "Publish", "Publish", "Stage", "Publish", "Unpublish", "Unpublish", "Unstage", "Unpublish", "Unstage")
}
