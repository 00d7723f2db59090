package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unwritable keeps containerd from writing into a directory, as a full disk would,
// until the function it returns, or the end of the test.
func (e *env) unwritable(dir string) (undo func()) {
	e.Helper()
	set := func(attribute string) {
		if out, err := exec.Command("chattr", attribute, dir).CombinedOutput(); err != nil {
			e.Errorf("chattr %s %s: %v: %s", attribute, dir, err, out)
		}
	}
	set("+i")
	undo = func() {
		if _, err := os.Lstat(dir); err == nil {
			set("-i")
		}
	}
	e.Cleanup(undo)
	return undo
}

// TestContainersThatTheRuntimeHasLostAreEndedAndLeaveNothing: a containerd that
// is started while its disk is full cannot load its containers, and never speaks
// of them again while they run on. Nothing is started beside the one that runs;
// it is ended, and its pod runs again. A pod that has ended does not.
func TestContainersThatTheRuntimeHasLostAreEndedAndLeaveNothing(t *testing.T) {
	e := begin(t)
	e.write("held.yaml", e.holding("held", "first"))
	e.write("job.yaml", e.once("job", "Never", 0))
	held := containerID(e.ready("held"), "main")
	lost := []string{held, containerID(e.phase("job", v1.PodSucceeded, 0), "main")}
	var undo []func()
	for _, id := range lost {
		undo = append(undo, e.unwritable(e.criDirs(id)[0]))
	}
	if err := e.node.Containerd.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// podd starts it again.
	if err := e.node.Containerd.WaitReady(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for i, id := range lost {
		_, err := e.node.CRI.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if grpcstatus.Code(err) != codes.NotFound {
			t.Fatalf("container %s was to be lost: %v", id, err)
		}
		undo[i]()
	}
	e.waitPod("held", "running in a new container", func(p *v1.Pod) error {
		if condition(p, v1.PodReady) != v1.ConditionTrue || containerID(p, "main") == held {
			return errors.New(describe(p))
		}
		return nil
	})
	if e.twice("held") {
		t.Error("the pod ran twice at once")
	}
	e.eventually("wait until nothing is left of the lost containers", func(context.Context) error {
		var errs []error
		for _, id := range lost {
			for _, dir := range e.criDirs(id) {
				if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, fmt.Errorf("%s is there (%v)", dir, err))
				}
			}
		}
		return errors.Join(errs...)
	})
	e.phase("job", v1.PodSucceeded, 0)
	if starts := e.contents("job.starts"); starts != "x\n" {
		t.Errorf("the pod that had ended began %q times, want once", starts)
	}
}

// TestWhatACallHeldThatBrokeOffWithTheRuntimeIsGivenBack: a containerd that is killed
// while it makes a container leaves a lease that holds the container's snapshot for
// a day. Those of calls since then, and of sandboxes, stay.
func TestWhatACallHeldThatBrokeOffWithTheRuntimeIsGivenBack(t *testing.T) {
	e := begin(t)
	e.write("held.yaml", e.holding("held", "first"))
	held := e.ready("held")
	lease, snapshot, err := e.node.CRI.BreakOff(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	has := func(list func(context.Context) ([]string, error), name string) bool {
		t.Helper()
		all, err := list(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(all, name)
	}
	if !has(e.node.CRI.Leases, lease) || !has(e.node.CRI.Snapshots, snapshot) {
		t.Fatal("the lease or what it holds is not there")
	}
	before, err := e.node.CRI.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.node.Containerd.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// podd starts it again.
	if err := e.node.Containerd.WaitReady(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	later, laterSnapshot, err := e.node.CRI.BreakOff(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e.eventually("wait until what the call held is given back", func(context.Context) error {
		if has(e.node.CRI.Leases, lease) || has(e.node.CRI.Snapshots, snapshot) {
			return errors.New("it is there")
		}
		return nil
	})
	if !has(e.node.CRI.Leases, later) || !has(e.node.CRI.Snapshots, laterSnapshot) {
		t.Error("a call of the new runtime has lost what it held")
	}
	for _, id := range before {
		if id != lease && !has(e.node.CRI.Leases, id) {
			t.Errorf("lease %s of a sandbox is gone", id)
		}
	}
	if now := e.ready("held"); containerID(now, "main") != containerID(held, "main") {
		t.Error("the pod that ran has another container")
	}
	if err := e.node.CRI.GiveBack(t.Context(), later); err != nil {
		t.Error(err)
	}
}

// TestWhatAFailedCallCouldNotTakeBackIsDeleted: a call that creates a container and
// fails while the disk is full can write neither that its record is deleted nor that
// its lease is, and containerd would keep what they hold until its own restart, and for
// a day. podd deletes both some seconds after a container that failed, and nothing of
// the pods that run.
func TestWhatAFailedCallCouldNotTakeBackIsDeleted(t *testing.T) {
	e := begin(t)
	e.write("held.yaml", e.holding("held", "first"))
	held := e.ready("held")
	snapshots := func() []string {
		t.Helper()
		all, err := e.node.CRI.Snapshots(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := snapshots()
	recorded, leased, err := e.node.CRI.Abandon(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if now := snapshots(); !slices.Contains(now, recorded) || !slices.Contains(now, leased) {
		t.Fatalf("the writable layers are not there: %v", now)
	}
	e.write("fails.yaml", replaced(e, e.resting("fails"), "/bin/sh", "/no/such"))
	e.eventually("wait until what the calls held is deleted", func(context.Context) error {
		if now := snapshots(); slices.Contains(now, recorded) || slices.Contains(now, leased) {
			return errors.New("it is there")
		}
		return nil
	})
	for _, id := range before {
		if !slices.Contains(snapshots(), id) {
			t.Errorf("the writable layer %s of a pod that runs is gone", id)
		}
	}
	if now := e.ready("held"); containerID(now, "main") != containerID(held, "main") {
		t.Error("the pod that ran has another container")
	}
}

// TestWhatAFailedSandboxCouldNotTakeBackIsDeleted: as with containers, so with sandboxes.
// What a call is at work on, and what runs, stays.
func TestWhatAFailedSandboxCouldNotTakeBackIsDeleted(t *testing.T) {
	e := begin(t)
	e.write("held.yaml", e.holding("held", "first"))
	held := e.ready("held")
	records := func() []string {
		t.Helper()
		all, err := e.node.CRI.SandboxRecords(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := records()
	layered, recorded, atWork, err := e.node.CRI.AbandonSandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e.write("fails.yaml", replaced(e, e.resting("fails"), "/bin/sh", "/no/such"))
	e.eventually("wait until what the calls left is deleted", func(ctx context.Context) error {
		snapshots, err := e.node.CRI.Snapshots(ctx)
		if now := records(); slices.Contains(now, layered) || slices.Contains(now, recorded) || slices.Contains(snapshots, layered) {
			return errors.New("it is there")
		}
		return err
	})
	for _, id := range append(before, atWork) {
		if !slices.Contains(records(), id) {
			t.Errorf("the record of sandbox %s, which runs or is just made, is gone", id)
		}
	}
	if err := e.node.CRI.GiveUp(t.Context(), atWork); err != nil {
		t.Error(err)
	}
	if now := e.ready("held"); containerID(now, "main") != containerID(held, "main") {
		t.Error("the pod that ran has another container")
	}
}

// criDirs are what CRI keeps on disk of a container: what outlives a boot, and
// what does not.
func (e *env) criDirs(id string) []string {
	const containers = "containerd/io.containerd.grpc.v1.cri/containers"
	return []string{filepath.Join(e.node.Root(), containers, id), filepath.Join(e.node.State(), containers, id)}
}
