package instance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// The lock is taken in a process that then becomes another, as Exec does, and
// must hold there, and not in that one's children.
func TestLockSurvivesExecAndDiesWithTheProcess(t *testing.T) {
	if os.Getenv("PODD_TEST_LOCK") != "" { // before it has a directory, which its killed process would leave
		if err := runtimeLock.acquire(os.Getenv("PODD_TEST_LOCK")); err != nil {
			t.Fatal(err)
		}
		// The child of the exec'd shell inherits the descriptor and lives on.
		err := syscall.Exec("/bin/sh", []string{"sh", "-c", "sleep 300 & echo $!; exec sleep 300"}, os.Environ())
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockSurvivesExecAndDiesWithTheProcess$")
	cmd.Env = append(os.Environ(), "PODD_TEST_LOCK="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var orphan int
	if _, err := fmt.Fscan(out, &orphan); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(orphan, syscall.SIGKILL)
	running, ok := errors.AsType[*InUseError](runtimeLock.acquire(dir))
	if !ok || running.PID != cmd.Process.Pid {
		t.Errorf("while held: got %+v, want an InUseError with process %d", running, cmd.Process.Pid)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !alive(orphan) {
		t.Fatal("the orphan is gone, so the test shows nothing")
	}
	if err := runtimeLock.acquire(dir); err != nil {
		t.Errorf("after its death: got %v, want the lock", err)
	}
}
