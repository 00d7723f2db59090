package cgroup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// TestEndKillsOnlyProcessesOfEndedContainers runs real processes in real cgroups.
func TestEndKillsOnlyProcessesOfEndedContainers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	facts, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	const root = "/podd-test-end/kubepods"
	tree := NewTree(facts, Cgroupfs, root, Settings{})
	t.Cleanup(func() {
		if err := tree.RemoveRoot(context.Background()); err != nil {
			t.Error(err)
		}
	})
	in := func(rel string) *exec.Cmd {
		t.Helper()
		dir := filepath.Join(facts.Mounts[0], root, rel)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Skipf("cannot make a cgroup here: %v", err)
		}
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	dead, below := in("besteffort/podu1/cri-containerd-s1.scope"), in("besteffort/podu1/cri-containerd-s1.scope/more")
	alive := map[string]*exec.Cmd{
		"of another container": in("besteffort/podu1/s2"),
		"of another pod":       in("burstable/podu2/s1"),
	}
	if err := tree.KillLeftover("u1", []string{"s1", "s3", ""}); err != nil {
		t.Error(err)
	}
	for _, cmd := range []*exec.Cmd{dead, below} {
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("a process of an ended container: got %v, want it killed", err)
		}
	}
	for whose, cmd := range alive {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("a process %s did not survive: %v", whose, err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if err := tree.KillLeftover("none", []string{"s1"}); err != nil {
		t.Errorf("a pod without a group: %v", err)
	}
}
