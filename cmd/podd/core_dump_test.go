package main

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// aborted lifts a process's limit of core files, aborts it, and reports whether it
// left one. done is closed when it has exited.
func aborted(t *testing.T, cmd *exec.Cmd, done <-chan struct{}) bool {
	t.Helper()
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_CORE, &all, nil); err != nil {
		t.Skipf("the limit of core files cannot be lifted here: %v", err)
	}
	if err := cmd.Process.Signal(unix.SIGABRT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("it does not exit")
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus).CoreDump()
}

// TestPoddLeavesNoCoreFile: it would contain Secrets. Another program that is
// aborted in the same way does leave one, and processes that podd starts may.
func TestPoddLeavesNoCoreFile(t *testing.T) {
	t.Setenv("GOTRACEBACK", "crash")
	some := unix.Rlimit{Cur: 4096, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &some); err != nil {
		t.Skipf("the limit of core files cannot be raised here: %v", err)
	}
	d := newDaemon(t, 0)
	t.Chdir(d.dir) // where a core file would be left
	control, done := exec.Command("sleep", "600"), make(chan struct{})
	if err := control.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		_ = control.Wait()
	}()
	if !aborted(t, control, done) {
		t.Skip("no program leaves a core file on this machine")
	}
	d.start()
	d.await("podd responds", func() bool { return d.pods() != nil })
	var mine, podds unix.Rlimit
	if err := errors.Join(unix.Prlimit(0, unix.RLIMIT_CORE, nil, &mine), unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_CORE, nil, &podds)); err != nil {
		t.Fatal(err)
	}
	if podds != mine {
		t.Errorf("podd has changed its limit of core files, which the runtime and containers inherit, from %v to %v", mine, podds)
	}
	if aborted(t, d.cmd, d.done) {
		t.Error("podd has left a core file")
	}
}
