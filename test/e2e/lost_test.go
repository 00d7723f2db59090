package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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

// criDirs are what CRI keeps on disk of a container: what outlives a boot, and
// what does not.
func (e *env) criDirs(id string) []string {
	const containers = "containerd/io.containerd.grpc.v1.cri/containers"
	return []string{filepath.Join(e.node.Root(), containers, id), filepath.Join(e.node.State(), containers, id)}
}
