package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podd/internal/pod"
)

func TestARejectedVolumeIsNotUnpublished(t *testing.T) {
	n, f := withDriver(t, stages)
	v := n.persistent("a", driverName, "h")
	f.on("NodeStageVolume", func(context.Context) error { return status.Error(codes.InvalidArgument, "no such share") })
	_, err := n.SetUp(t.Context(), v)
	if err == nil || err.Error() != "kubernetes.io/csi: NodeStageVolume: rpc error: code = InvalidArgument desc = no such share" {
		t.Fatalf("got %v", err)
	}
	f.on("NodeStageVolume", nil)
	f.on("NodePublishVolume", func(context.Context) error { return status.Error(codes.NotFound, "no such share") })
	if _, err := n.SetUp(t.Context(), v); err == nil || !strings.Contains(err.Error(), "NodePublishVolume") {
		t.Fatalf("got %v", err)
	}
	n.mustTearDown(v)
	wantCalls(t, f, "Stage", "Stage", "Publish", "Unstage")
}

// The driver may have published the volume before it crashed.
func TestAVolumeWhoseDriverCrashedIsUnpublished(t *testing.T) {
	n, f := withDriver(t, stages)
	v := n.persistent("a", driverName, "h")
	f.on("NodePublishVolume", func(ctx context.Context) error {
		go f.stop()
		<-ctx.Done() // the connection is gone, and no answer arrives
		return status.Error(codes.Unavailable, "gone")
	})
	if _, err := n.SetUp(t.Context(), v); err == nil {
		t.Fatal("SetUp succeeded although the driver crashed")
	}
	eventually(t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 0 })
	err := n.TearDown(t.Context(), v.Dir)
	if err == nil || !strings.Contains(err.Error(), "Unmounter.TearDownAt failed to get CSI client: driver name disk.example.com not found in the list of registered CSI drivers") {
		t.Fatalf("got %v", err)
	}
	if _, err := readRecord(v.Dir); err != nil {
		t.Fatalf("the record is gone: %v", err)
	}
	again := newFake(t, driverName, stages).serve().register(n)
	if uid := <-n.woken; uid != pod.UID("a") {
		t.Errorf("woke %s", uid)
	}
	n.mustTearDown(v)
	wantCalls(t, again, "Unpublish", "Unstage")
}

func TestADriverThatHangsBlocksOnlyItsOwnVolume(t *testing.T) {
	n := newNode(t, "")
	slow := newFake(t, driverName).serve().register(n)
	quick := newFake(t, "quick.example.com").serve().register(n)
	n.has(driverName)
	n.has("quick.example.com")
	v, w := n.persistent("a", driverName, "h"), n.persistent("b", "quick.example.com", "h")
	n.mustSetUp(v)
	n.mustSetUp(w)
	release := make(chan struct{})
	slow.on("NodeUnpublishVolume", func(context.Context) error { <-release; return nil })
	n.tearDownWait = 50 * time.Millisecond
	for range 2 { // the second joins the first
		if err := n.TearDown(t.Context(), v.Dir); err == nil || !strings.Contains(err.Error(), "has not unpublished it yet") {
			t.Fatalf("got %v", err)
		}
	}
	n.tearDownWait = time.Minute
	n.mustTearDown(w)
	wantCalls(t, quick, "Publish", "Unpublish")
	close(release)
	if uid := <-n.woken; uid != pod.UID("a") {
		t.Errorf("woke %s", uid)
	}
	n.mustTearDown(v)
	wantCalls(t, slow, "Publish", "Unpublish")
}

func TestASetUpEndsWithItsPod(t *testing.T) {
	n, f := withDriver(t)
	f.on("NodePublishVolume", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	ctx, cancel := context.WithCancel(t.Context())
	v := n.persistent("a", driverName, "h")
	go func() {
		eventually(t, "the driver is asked", func() bool { return len(f.heard()) > 0 })
		cancel()
	}()
	if _, err := n.SetUp(ctx, v); err == nil {
		t.Fatal("it was set up")
	}
	n.mustTearDown(v) // unpublishes: the volume may have been published
	wantCalls(t, f, "Publish", "Unpublish")
}

// What an earlier podd left is found on disk.
func TestVolumesOfAnEarlierPoddAreUnpublished(t *testing.T) {
	n, f := withDriver(t, stages)
	v := n.persistent("a", driverName, "h")
	n.mustSetUp(v)
	n.stop() // the next one starts without its memory
	next := newNode(t, n.root)
	next.has(driverName)
	next.mustTearDown(v)
	wantCalls(t, f, "Stage", "Publish", "Unpublish", "Unstage")
}

func TestAStagedVolumeWithoutUsersIsUnstagedWhenItsDriverRegisters(t *testing.T) {
	n, f := withDriver(t, stages)
	v, used := n.persistent("a", driverName, "h"), n.persistent("b", driverName, "used")
	n.mustSetUp(v)
	n.mustSetUp(used)
	n.stop()
	if err := os.RemoveAll(v.Dir); err != nil { // as if killed after the record was removed
		t.Fatal(err)
	}
	next := newNode(t, n.root)
	eventually(t, "it is unstaged", func() bool { return len(f.heard()) == 5 })
	wantCalls(t, f, "Stage", "Publish", "Stage", "Publish", "Unstage")
	if q := last[*csipb.NodeUnstageVolumeRequest](f); q.VolumeId != "h" {
		t.Errorf("unstaged %s", q.VolumeId)
	}
	next.mustTearDown(used)
}

// A kubelet, in whose place podd is now, writes less of a staged volume.
func TestAVolumeThatAKubeletStagedIsUnstagedWithoutUsers(t *testing.T) {
	n, f := withDriver(t, stages)
	v := n.persistent("a", driverName, "h")
	n.mustSetUp(v)
	n.stop()
	staged := filepath.Join(n.root, "plugins/kubernetes.io/csi", driverName, hashed("", "h"))
	text := `{"driverName":"` + driverName + `","volumeHandle":"h"}`
	if err := errors.Join(os.RemoveAll(v.Dir), os.WriteFile(filepath.Join(staged, recordFile), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	newNode(t, n.root)
	eventually(t, "it is unstaged", func() bool { return len(f.heard()) == 3 })
	wantCalls(t, f, "Stage", "Publish", "Unstage")
}

// After a reboot the directories exist, but no mounts.
func TestAVolumeIsStagedAgainAfterAReboot(t *testing.T) {
	n, f := withDriver(t, stages)
	v := n.persistent("a", driverName, "h")
	n.mustSetUp(v)
	n.stop()
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if r, readErr := readRecord(v.Dir); errors.Join(err, readErr) != nil || r.Boot != strings.TrimSpace(string(id)) {
		t.Errorf("got record %+v (%v), want the boot %s", r, errors.Join(err, readErr), id)
	}
	next := newNode(t, n.root, func(v *Volumes) { v.boot = "another" })
	next.has(driverName)
	next.mustSetUp(v)
	wantCalls(t, f, "Stage", "Publish", "Stage", "Publish")
}

func TestFilesLeftByADriverAreNotDeleted(t *testing.T) {
	n, f := withDriver(t, stages)
	v := n.persistent("a", driverName, "h")
	n.mustSetUp(v)
	data := filepath.Join(n.Path(v), "data")
	if err := os.WriteFile(data, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.on("NodeUnpublishVolume", func(context.Context) error { return errLies })
	if err := n.TearDown(t.Context(), v.Dir); err == nil || !strings.Contains(err.Error(), "has left something behind") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(data); err != nil {
		t.Error(err)
	}
}

func TestAnUnreadableRecordIsReportedAndKept(t *testing.T) {
	n, _ := withDriver(t)
	dir := n.volumeDir("a", "v")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"{", `{"driverName": "../../../etc", "volumeHandle": "x"}`} {
		if err := os.WriteFile(filepath.Join(dir, recordFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := n.TearDown(t.Context(), dir); err == nil || !strings.Contains(err.Error(), recordFile) {
			t.Errorf("%s: got %v", content, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, recordFile)); err != nil {
			t.Error(err)
		}
	}
}

func TestADirectoryWithoutARecordNeedsNoDriver(t *testing.T) {
	n := newNode(t, "")
	dir := n.volumeDir("a", "v")
	if err := os.MkdirAll(filepath.Join(dir, "mount"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := n.TearDown(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if err := n.TearDown(t.Context(), n.volumeDir("b", "v")); err != nil {
		t.Error(err)
	}
}
