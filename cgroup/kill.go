package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"podd/internal/pod"
)

// KillLeftover kills the processes in those cgroups below a pod's that have one of the IDs
// in their names. The IDs are those of sandboxes and containers that the runtime reports as
// ended. A runtime that is interrupted while it starts a process may leave it behind and
// forget it. KillLeftover leaves the pod's other cgroups alone: another agent's container of
// the same pod may run there. It does not wait until the processes have exited.
func (t *Tree) KillLeftover(uid pod.UID, ids []string) error {
	var errs []error
	for _, rel := range t.podPaths(uid) {
		for _, mount := range t.facts.Mounts {
			dir := filepath.Join(mount, rel)
			entries, err := os.ReadDir(dir)
			errs = append(errs, ignoreGone(err))
			for _, e := range entries {
				if e.IsDir() && slices.ContainsFunc(ids, func(id string) bool { return id != "" && strings.Contains(e.Name(), id) }) {
					errs = append(errs, killTree(filepath.Join(dir, e.Name())))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// killTree kills the processes in a cgroup and in those below it.
func killTree(dir string) error {
	// The kernel kills them atomically (v2, since 5.14), even if they fork meanwhile.
	if err := writeExisting(filepath.Join(dir, "cgroup.kill"), "1"); err == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	errs := []error{ignoreGone(err)}
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, killTree(filepath.Join(dir, e.Name())))
		}
	}
	members, err := processes(dir)
	errs = append(errs, err)
	for _, pid := range members {
		errs = append(errs, killMember(dir, pid))
	}
	return errors.Join(errs...)
}

// killMember kills a process if it is still a member of the cgroup: its PID may have
// been reused.
func killMember(dir string, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	members, err := processes(dir)
	if err != nil || !slices.Contains(members, pid) {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}

// processes lists the processes of a cgroup itself; none if it is gone.
func processes(dir string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, ignoreGone(err)
	}
	var all []int
	for line := range strings.FieldsSeq(string(text)) {
		// Processes of another PID namespace are listed as 0: not ours to kill.
		if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
			all = append(all, pid)
		}
	}
	return all, nil
}

// writeExisting writes to a cgroup file, and never creates one.
func writeExisting(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
