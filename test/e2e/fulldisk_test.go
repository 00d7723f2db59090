package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podd/test/e2e/testnode"
)

// notTakenBack is what containerd logs of a sandbox whose container it could not delete.
var notTakenBack = regexp.MustCompile(`Failed to delete containerd container \\?"([0-9a-f]{64})`)

// TestASandboxThatFailsWhileNothingCanBeWrittenLeavesNothing: runc fails, and containerd
// can write into its database no more by then, as on a full disk. CRI lists the sandbox,
// and once that is removed knows nothing of its container, which held the snapshot until
// containerd was restarted. The pod runs as soon as there is room.
func TestASandboxThatFailsWhileNothingCanBeWrittenLeavesNothing(t *testing.T) {
	e := begin(t)
	e.write("held.yaml", e.resting("held"))
	e.ready("held") // and there is a directory of runc's
	left := ""
	for i := 0; left == ""; i++ {
		if i == 10 {
			t.Fatal("no sandbox could be caught while it was created")
		}
		left = e.failsUnwritten(fmt.Sprintf("caught%d", i))
	}
	e.eventually("wait until nothing is left of sandbox "+left, func(ctx context.Context) error {
		records, err := e.node.CRI.SandboxRecords(ctx)
		snapshots, notListed := e.node.CRI.Snapshots(ctx)
		if slices.Contains(records, left) || slices.Contains(snapshots, left) {
			return errors.New("its record or its snapshot is there")
		}
		return errors.Join(err, notListed)
	})
}

// TestAShimThatIsKilledWhileItsSandboxIsMadeLeavesNothing: neither its socket, which
// itself would have removed.
func TestAShimThatIsKilledWhileItsSandboxIsMadeLeavesNothing(t *testing.T) {
	e := begin(t)
	running := e.shims()
	e.write("killed.yaml", e.resting("killed"))
	if err := unix.Kill(e.caught(running), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.ready("killed")
}

// failsUnwritten writes a pod, has its sandbox fail when nothing can be written, and
// returns when the pod runs. It returns the sandbox's ID; "" if it failed too early.
func (e *env) failsUnwritten(name string) (sandbox string) {
	e.Helper()
	running, logged := e.shims(), len(e.containerdLog())
	undoRunc := e.unwritable(filepath.Join(e.node.State(), "runc/k8s.io"))
	e.write(name+".yaml", e.resting(name))
	pid := e.caught(running)
	undo := e.unwritable(filepath.Join(e.node.Root(), "containerd/io.containerd.metadata.v1.bolt/meta.db"))
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		e.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(e.Context(), 10*time.Second)
	defer cancel()
	_ = testnode.Poll(ctx, 10*time.Millisecond, func() error {
		m := notTakenBack.FindSubmatch(e.containerdLog()[logged:])
		if m == nil {
			return errors.New("it is not there")
		}
		sandbox = string(m[1])
		return nil
	})
	undo()
	undoRunc()
	e.ready(name)
	return sandbox
}

// shims are those of the node, without the programs that start and delete one.
func (e *env) shims() []int {
	return shims(e.T, func(args []string) bool {
		return !slices.Contains(args, "start") && !slices.Contains(args, "delete") &&
			slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, e.node.Dir+"/") })
	})
}

// caught stops the first shim that is none of these, and returns its process ID.
func (e *env) caught(running []int) int {
	e.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		for _, pid := range e.shims() {
			if !slices.Contains(running, pid) && e.leftByItsStarter(pid) && unix.Kill(pid, unix.SIGSTOP) == nil {
				return pid
			}
		}
	}
	e.Fatal("no shim was started")
	return 0
}

// leftByItsStarter waits until "shim start" has ended: its end sends SIGHUP to a shim
// that is stopped by then, as to every stopped process of a group that it orphans, and
// the shim would die of it. It returns false if the shim is gone.
func (e *env) leftByItsStarter(pid int) bool {
	parent := testnode.ParentOf(pid)
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent))
	if strings.HasSuffix(string(args), "\x00start\x00") {
		for starter := parent; parent == starter; {
			parent = testnode.ParentOf(pid)
		}
	}
	return parent != 0
}

// containerdLog is all that the node's containerd has logged.
func (e *env) containerdLog() []byte {
	e.Helper()
	text, err := os.ReadFile(e.node.Containerd.LogPath())
	if err != nil {
		e.Fatal(err)
	}
	return text
}
