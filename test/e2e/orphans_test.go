package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// canary is a tree that is nobody's but the test's; check says what became of it.
type canary struct{ dir string }

func (e *env) canary() canary {
	e.Helper()
	c := canary{filepath.Join(e.podd.Dir, "canary")}
	if err := errors.Join(os.MkdirAll(c.dir+"/deep/er", 0o755), os.WriteFile(c.dir+"/deep/er/file", []byte("precious"), 0o600)); err != nil {
		e.Fatal(err)
	}
	return c
}

func (c canary) check(e *env) {
	e.Helper()
	if text, err := os.ReadFile(c.dir + "/deep/er/file"); err != nil || string(text) != "precious" {
		e.Errorf("what was mounted has become %q (%v)", text, err)
	}
}

// mount makes a directory and mounts there; what stays is unmounted after the test.
func (e *env) mount(source, at, kind string, flags uintptr) {
	e.Helper()
	if err := errors.Join(os.MkdirAll(at, 0o755), unix.Mount(source, at, kind, flags, "")); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
}

// behindALink has podd's root directory behind a symbolic link.
func (e *env) behindALink() {
	e.Helper()
	e.podd.Root = filepath.Join(e.podd.Dir, "root")
	if err := os.Symlink(e.node.Root(), e.podd.Root); err != nil {
		e.Fatal(err)
	}
}

// heldBy is a process that works in a directory until it is ended.
func (e *env) heldBy(dir string) *exec.Cmd {
	e.Helper()
	cmd := exec.Command("sleep", "3600")
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { letGo(cmd) })
	return cmd
}

func letGo(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func (e *env) isGone(dir string) {
	e.Helper()
	e.eventually(dir+" goes", func(context.Context) error {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("it is there (%w)", err)
		}
		return nil
	})
}

// TestOrphanedPodDirectoriesAreRemovedButNothingThatIsMountedInThem
// (kubernetes/kubernetes#60987, #45464, #38498, #105536, #134075): they were logged
// every two seconds for ever, never removed, and the scripts that people wrote instead
// deleted what was mounted there. Here nobody knows the directories, one has tmpfs
// stacked on one another, one a bind mount inside an emptyDir, the root directory is
// behind a link; what cannot be unmounted is one line in the log and one event, and goes
// when it can.
func TestOrphanedPodDirectoriesAreRemovedButNothingThatIsMountedInThem(t *testing.T) {
	e := prepare(t)
	e.behindALink()
	data := e.canary()
	orphan := func(name string) string { return filepath.Join(e.node.Root(), "pods", name) }
	const scratch = "/volumes/kubernetes.io~empty-dir/scratch"
	for range 3 {
		e.mount("tmpfs", orphan("stacked")+scratch, "tmpfs", 0)
	}
	for _, name := range []string{"bound", "held"} {
		e.mount(data.dir, orphan(name)+scratch+"/of/the/pod", "", unix.MS_BIND)
		if err := os.WriteFile(orphan(name)+scratch+"/file", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(data.dir, orphan("bound")+scratch+"/link"); err != nil {
		t.Fatal(err)
	}
	holder := e.heldBy(orphan("held") + scratch + "/of/the/pod")
	e.start()
	e.isGone(orphan("stacked"))
	e.isGone(orphan("bound"))
	data.check(e)

	held := fmt.Sprintf("process %d (sleep) holds it", holder.Process.Pid)
	e.shows(held)
	// What is shown and told does not change with each attempt: after 2 s, 4 s and 8 s.
	const line = "cannot remove pod directory"
	lines, until := strings.Count(e.podd.LogTail(1<<20), line), time.Now().Add(15*time.Second)
	e.eventually("it is tried again and again", func(ctx context.Context) error {
		if time.Now().Before(until) {
			return errors.New("it goes on")
		}
		return nil
	})
	if n := strings.Count(e.podd.LogTail(1<<20), line); n != lines || n > 2 {
		t.Errorf("its log has %d lines about it, and had %d, want none for what is known", n, lines)
	}
	if text := e.run("events"); strings.Count(text, "FailedUnMount") != 1 || !strings.Contains(text, orphan("held")) {
		t.Errorf("got events\n%s\nwant one FailedUnMount", text)
	}
	if _, err := os.Stat(orphan("held") + scratch + "/file"); err != nil {
		t.Errorf("what is beside a mount that is in use: %v", err)
	}
	letGo(holder)
	e.isGone(orphan("held"))
	data.check(e)
}

// TestAPodWithABusyVolumeEndsAndTheProcessIsNamed (kubernetes/kubernetes#51835, #65110,
// #65879, #72604, #122342, #111763): pods stayed Terminating because a volume was busy,
// tmpfs were mounted on one another by the thousand, a root directory behind a link was
// not found in the mount table. The pod ends, its name is free again, and what is left
// names who holds it.
func TestAPodWithABusyVolumeEndsAndTheProcessIsNamed(t *testing.T) {
	e := prepare(t)
	e.behindALink()
	e.start()
	manifest := func(mark string) string {
		return replaced(e, e.podOf("busy", "echo "+mark+" > /scratch/file; : > /out/"+mark+"; ${REST}"), "mountPath: /out}]", "mountPath: /out}, {name: scratch, mountPath: /scratch}]") +
			"  - name: scratch\n    emptyDir: {medium: Memory}\n"
	}
	e.write("busy.yaml", manifest("first"))
	e.mark("first")
	first := e.ready("busy")
	scratch := filepath.Join(e.node.Root(), "pods", string(first.UID), "volumes/kubernetes.io~empty-dir/scratch")
	for range 5 { // as many set-ups as restarts: one mount
		e.kill()
		e.start()
		e.ready("busy")
	}
	if n := e.mountsAt(scratch); n != 1 {
		t.Errorf("%d file systems are mounted on one another after five restarts of podd, want one", n)
	}
	holder := e.heldBy(scratch)
	e.write("busy.yaml", manifest("second")) // a new pod of the same name
	e.mark("second")
	second := e.ready("busy")
	if second.UID == first.UID {
		t.Error("the edited manifest is still the first pod")
	}
	held := fmt.Sprintf("process %d (sleep) holds it: working in %s", holder.Process.Pid, scratch)
	e.shows(held)
	e.event("busy", "FailedUnMount", held)
	e.remove("busy.yaml")
	e.ended("busy")
	letGo(holder)
	e.isGone(filepath.Dir(filepath.Dir(filepath.Dir(scratch))))
}

// mountsAt is how many file systems are mounted at a path on one another.
func (e *env) mountsAt(path string) int {
	e.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		e.Fatal(err)
	}
	return strings.Count(string(table), " "+path+" ")
}
