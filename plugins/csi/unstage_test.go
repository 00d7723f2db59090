package csi

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// abandoned returns the root directory of a node that has ended, and a driver that has staged
// volumes there which no pod uses.
func abandoned(t *testing.T, handles ...string) (root string, f *fake, staged map[string]string) {
	t.Helper()
	n, f := withDriver(t, stages)
	staged = map[string]string{}
	for _, handle := range handles {
		v := n.persistent("uid-"+handle, driverName, handle)
		n.mustSetUp(v)
		staged[handle] = n.paths(v).stagingRecordDir
		if err := os.RemoveAll(v.Dir); err != nil {
			t.Fatal(err)
		}
	}
	n.stop()
	f.stop()
	return n.root, f, staged
}

// The others are unstaged.
func TestAStagedVolumeWhoseRecordCannotBeReadIsKept(t *testing.T) {
	root, f, staged := abandoned(t, "broken", "good")
	mustWrite(t, filepath.Join(staged["broken"], recordFile), "{")
	n := newNode(t, root)
	f.serve().register(n)
	eventually(t, "the other is unstaged", func() bool { _, err := os.Lstat(staged["good"]); return errors.Is(err, os.ErrNotExist) })
	wantCalls(t, f, "Stage", "Publish", "Stage", "Publish", "Unstage")
	if q := last[*csipb.NodeUnstageVolumeRequest](f); q.VolumeId != "good" {
		t.Errorf("unstaged %s", q.VolumeId)
	}
	if text, err := os.ReadFile(filepath.Join(staged["broken"], recordFile)); err != nil || string(text) != "{" {
		t.Errorf("got %q, %v", text, err)
	}
}

// Records of devices are in one directory, whatever their driver.
func TestADriverIsNotAskedToUnstageADeviceOfAnother(t *testing.T) {
	before, f := withDriver(t, stages)
	v, block := before.persistent("a", driverName, "h"), v1.PersistentVolumeBlock
	v.Persistent.Spec.VolumeMode = &block
	before.mustSetUp(v)
	before.stop()
	f.stop()
	if err := os.RemoveAll(v.Dir); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, before.root)
	other := newFake(t, "other.example.com", stages).serve().register(n)
	n.has(other.name)
	f.serve().register(n)
	eventually(t, "it is unstaged", func() bool {
		_, err := os.Lstat(filepath.Dir(before.paths(v).stagingRecordDir))
		return errors.Is(err, os.ErrNotExist)
	})
	wantCalls(t, f, "Stage", "Publish", "Unstage")
	wantCalls(t, other)
}

// lines is a log that another goroutine writes.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// Nobody else would tell of it: there is no pod.
func TestWhyAVolumeWithoutUsersStaysStagedIsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, f *fake, staged string)
		want  string
	}{
		"its record cannot be read": {func(t *testing.T, _ *fake, staged string) {
			mustWrite(t, filepath.Join(staged, recordFile), "{")
		}, "does not say which volume it was"},
		"a user's record cannot be read": {func(t *testing.T, _ *fake, staged string) {
			root := staged[:strings.Index(staged, "/plugins/")]
			mustWrite(t, filepath.Join(root, "pods/other/volumes/kubernetes.io~csi/pv", recordFile), "{")
		}, "pods/other/volumes/kubernetes.io~csi/pv/vol_data.json does not say which volume it was"},
		"its driver refuses": {func(_ *testing.T, f *fake, _ string) {
			f.on("NodeUnstageVolume", func(context.Context) error { return status.Error(codes.Internal, "busy") })
		}, "attacher.UnmountDevice failed: NodeUnstageVolume: rpc error: code = Internal desc = busy"},
		"its driver cannot say what it can do": {func(_ *testing.T, f *fake, _ string) {
			f.on("NodeGetCapabilities", func(context.Context) error { return status.Error(codes.Internal, "starting") })
		}, "NodeGetCapabilities: rpc error: code = Internal desc = starting"},
	} {
		t.Run(name, func(t *testing.T) {
			root, f, staged := abandoned(t, "h")
			c.spoil(t, f, staged["h"])
			log := &lines{}
			n := newNode(t, root, func(v *Volumes) { v.log = slog.New(slog.NewTextHandler(log, nil)) })
			f.serve().register(n)
			eventually(t, "the log says "+c.want, func() bool {
				return log.has("cannot unstage a volume that nobody uses: its driver is asked again when it registers") && log.has(c.want)
			})
		})
	}
}

// The directory of a driver has all that it has staged.
func TestAVolumeIsUnstagedWhileOthersAreStaged(t *testing.T) {
	n, f := withDriver(t, stages)
	one, two := n.persistent("a", driverName, "one"), n.persistent("b", driverName, "two")
	device, block := n.persistent("c", driverName, "device"), v1.PersistentVolumeBlock
	device.Persistent.Spec.VolumeMode = &block
	for _, v := range []pod.CSIVolume{one, two, device} {
		n.mustSetUp(v)
	}
	n.mustTearDown(one)
	beside := filepath.Join(filepath.Dir(n.paths(device).stagingRecordDir), "beside")
	mustWrite(t, beside, "")
	if err := n.TearDown(t.Context(), device.Dir); err == nil || !strings.Contains(err.Error(), "directory not empty") {
		t.Errorf("with a file beside the device's record: got %v", err)
	}
	if err := os.Remove(beside); err != nil {
		t.Fatal(err)
	}
	n.mustTearDown(device)
	n.mustTearDown(two)
	for _, v := range []pod.CSIVolume{one, two} {
		if _, err := os.Lstat(n.paths(v).stagingRecordDir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", v.Persistent.Spec.CSI.VolumeHandle, err)
		}
	}
	wantCalls(t, f, "Stage", "Publish", "Stage", "Publish", "Stage", "Publish", "Unpublish", "Unstage", "Unpublish", "Unstage", "Unpublish", "Unpublish", "Unstage")
}
