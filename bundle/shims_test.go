package bundle

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// someSettings have a state directory of their own and a runc that notes how it
// was called.
func someSettings(t *testing.T) *Settings {
	t.Helper()
	dir := t.TempDir()
	s := &Settings{BinDir: filepath.Join(dir, "bin"), RootDir: filepath.Join(dir, "root"), StateDir: filepath.Join(dir, "run")}
	for _, d := range []string{s.BinDir, s.RootDir, s.StateDir} {
		mkdir(t, d)
	}
	script := "#!/bin/sh\necho \"$*\" >> " + filepath.Join(dir, "runc.calls") + "\n"
	if err := os.WriteFile(filepath.Join(s.BinDir, "runc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// aShim starts a process that looks like a shim. It ends with the test.
func aShim(t *testing.T, s *Settings, socket, id string, more ...string) *exec.Cmd {
	t.Helper()
	name := filepath.Join(s.BinDir, "containerd-shim-runc-v2")
	if err := os.Symlink("/bin/sh", name); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	args := append([]string{"-c", "read -r line", "sh", "-namespace", "k8s.io", "-id", id, "-address", socket}, more...)
	cmd := exec.Command(name, args...)
	if _, err := cmd.StdinPipe(); err != nil { // kept open: it waits for a line
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

// answers is a containerd that says what the function says, and notes what
// it was told to delete.
type answers struct {
	record  func(namespace, id string) (Record, error)
	deleted *[]string
}

func (a answers) Record(_ context.Context, namespace, id string) (Record, error) {
	return a.record(namespace, id)
}

func (a answers) Delete(_ context.Context, _, id string) error {
	*a.deleted = append(*a.deleted, id)
	return nil
}

// knows is a containerd with records and tasks of these.
func knows(ids ...string) Runtime {
	return answers{record: func(namespace, id string) (Record, error) {
		if namespace == "k8s.io" && slices.Contains(ids, id) {
			return Record{Known: true, Task: true}, nil
		}
		return Record{}, nil
	}}
}

// allBefore takes what is older for left behind, whatever it is.
func allBefore(before, runtimeBegan time.Time) LeftoverCriteria {
	return LeftoverCriteria{Before: before, UnownedBefore: before, RuntimeBegan: runtimeBegan}
}

// hasEnded says whether a process is no more, or only waits to be reaped.
func hasEnded(cmd *exec.Cmd) bool { return !alive(cmd.Process.Pid) }

func TestOnlyShimsOfThisContainerdWithoutARecordAreEnded(t *testing.T) {
	s := someSettings(t)
	lost := aShim(t, s, Socket(s.StateDir), "lost")
	kept := []*exec.Cmd{
		aShim(t, s, Socket(s.StateDir), "known"),
		aShim(t, s, "/run/other/containerd.sock", "lost"),
		aShim(t, s, Socket(s.StateDir), "lost", "start"),
	}
	got, err := s.CollectShims(t.Context(), knows("known"), allBefore(time.Now().Add(time.Second), time.Now()))
	if err != nil || got != (CollectedShims{Shims: 1}) {
		t.Errorf("got %+v, %v, want one shim", got, err)
	}
	if !hasEnded(lost) {
		t.Error("the lost shim lives")
	}
	for _, cmd := range kept {
		if hasEnded(cmd) {
			t.Errorf("%v was ended", cmd.Args)
		}
	}
}

func TestWhatBeganLaterIsNotTouched(t *testing.T) {
	s := someSettings(t)
	young := aShim(t, s, Socket(s.StateDir), "lost")
	dir := mkdir(t, filepath.Join(s.StateDir, taskPlugin, "k8s.io/lost"))
	deadSocket(t, s)
	got, err := s.CollectShims(t.Context(), knows(), allBefore(time.Now().Add(-time.Minute), time.Now()))
	if err != nil || got.Any() {
		t.Errorf("got %+v, %v, want nothing", got, err)
	}
	if _, err := os.Stat(dir); err != nil || hasEnded(young) {
		t.Errorf("directory: %v; shim ended: %v; want both left", err, hasEnded(young))
	}
}

func TestWhatContainerdDoesNotAnswerForIsNotTouched(t *testing.T) {
	s := someSettings(t)
	asked := aShim(t, s, Socket(s.StateDir), "lost")
	silent := answers{record: func(string, string) (Record, error) { return Record{}, errors.New("no answer") }}
	got, err := s.CollectShims(t.Context(), silent, allBefore(time.Now().Add(time.Second), time.Now()))
	if err == nil || !strings.Contains(err.Error(), "no answer") || got.Any() || hasEnded(asked) {
		t.Errorf("got %+v, %v, shim ended: %v; want an error and the shim alive", got, err, hasEnded(asked))
	}
}

// deadSocket makes a socket that nobody listens on.
func deadSocket(t *testing.T, s *Settings) string {
	t.Helper()
	path := filepath.Join(mkdir(t, s.shimDir()), "dead")
	t.Cleanup(func() { _ = os.RemoveAll(s.shimDir()) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	return path
}

func TestDirectoriesRuncsNotesAndSocketsOfLostContainersGo(t *testing.T) {
	s := someSettings(t)
	gone := []string{
		mkdir(t, filepath.Join(s.StateDir, taskPlugin, "k8s.io/lost")),
		mkdir(t, filepath.Join(s.RootDir, taskPlugin, "k8s.io/lost")),
		mkdir(t, filepath.Join(s.StateDir, "runc/k8s.io/lost")),
		deadSocket(t, s),
		mkdir(t, filepath.Join(s.StateDir, taskPlugin, "k8s.io/.half")), // the last containerd died over it
		mkdir(t, filepath.Join(s.RootDir, taskPlugin, "k8s.io/.half")),
	}
	stay := []string{
		mkdir(t, filepath.Join(s.StateDir, taskPlugin, "k8s.io/known")),
		mkdir(t, filepath.Join(s.StateDir, "runc/k8s.io/known")),
		filepath.Join(s.shimDir(), "live"),
	}
	l, err := net.Listen("unix", stay[2])
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	began := time.Now()
	got, err := s.CollectShims(t.Context(), knows("known"), allBefore(began.Add(time.Second), began))
	if want := (CollectedShims{Containers: 1, Directories: 3, Sockets: 1}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, path := range gone {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want it gone", path, err)
		}
	}
	for _, path := range stay {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: got %v, want it left", path, err)
		}
	}
	calls, _ := os.ReadFile(filepath.Join(filepath.Dir(s.BinDir), "runc.calls"))
	want := "--root " + filepath.Join(s.StateDir, "runc/k8s.io") + " delete --force lost\n"
	if string(calls) != want {
		t.Errorf("runc was called with %q, want %q", calls, want)
	}
}

// TestWhatContainerdGaveUpDeletingIsRemoved: it tries once, and fails where a shim whose
// caller had gone mounts something there meanwhile.
func TestWhatContainerdGaveUpDeletingIsRemoved(t *testing.T) {
	s := someSettings(t)
	dir := mkdir(t, filepath.Join(s.StateDir, taskPlugin, "k8s.io/.half"))
	rootfs := mkdir(t, filepath.Join(dir, "rootfs"))
	if os.Geteuid() == 0 {
		if err := unix.Mount("tmpfs", rootfs, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(rootfs, unix.MNT_DETACH) })
	}
	old, now := time.Now().Add(-time.Hour), time.Now()
	if err := os.Chtimes(dir, old, old); err != nil { // it had its container for long
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what          string
		unownedBefore time.Time
		gone          bool
	}{
		{"containerd may still be deleting it", now.Add(-time.Second), false},
		{"containerd has given up", now.Add(time.Minute), true},
	} {
		criteria := LeftoverCriteria{Before: now.Add(-time.Minute), UnownedBefore: tt.unownedBefore, RuntimeBegan: now.Add(-time.Minute)}
		got, err := s.CollectShims(t.Context(), knows(), criteria)
		if err != nil || exists(dir) == tt.gone || got.Any() != tt.gone {
			t.Errorf("%s: got %+v, %v; it is there: %v", tt.what, got, err, exists(dir))
		}
	}
}

// A podd that dies while its container is made leaves containerd with a record
// and without a task, and the shim with a container that nobody will start; or
// CRI says that the container has ended while its process waits for ever.
func TestContainerThatNobodyStartsIsDeletedWhileItsSandboxLives(t *testing.T) {
	s := someSettings(t)
	note := mkdir(t, filepath.Join(s.StateDir, "runc/k8s.io/half"))
	other := mkdir(t, filepath.Join(s.StateDir, "runc/k8s.io/runs"))
	sandbox := aShim(t, s, Socket(s.StateDir), "box")
	mkdir(t, filepath.Join(s.StateDir, "runc/k8s.io/over"))
	var deleted []string
	runtime := answers{deleted: &deleted, record: func(_, id string) (Record, error) {
		return Record{Known: true, Task: id != "half", EndedInCRI: id == "over", Sandbox: map[string]string{"half": "box", "runs": "box"}[id]}, nil
	}}
	got, err := s.CollectShims(t.Context(), runtime, allBefore(time.Now().Add(time.Second), time.Now()))
	if err != nil || got != (CollectedShims{Containers: 2}) {
		t.Errorf("got %+v, %v, want two containers", got, err)
	}
	if !slices.Equal(deleted, []string{"over"}) {
		t.Errorf("tasks deleted: got %v, want that of the container that CRI has given up", deleted)
	}
	if _, err := os.Stat(note); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lost container: got %v, want it gone", err)
	}
	if _, err := os.Stat(other); err != nil || hasEnded(sandbox) {
		t.Errorf("the running container: %v; the sandbox's shim ended: %v; want both untouched", err, hasEnded(sandbox))
	}
}

func TestShimSocketIsNamedAsContainerdNamesIt(t *testing.T) {
	s := &Settings{StateDir: "/run/podd"}
	want := "/run/podd/s/ba2beed17e92eb77f4a77f2827ac3d412fc27b46c3cff23d49356bc09d5da48b"
	if got := s.shimSocket("k8s.io", "abc"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestWhatNoCallCanBeCreatingIsCollectedSoon: a shim that is slow makes a container
// when the call that asked for it has long failed, and "runc init" waits for ever in
// the pod's cgroup.
func TestWhatNoCallCanBeCreatingIsCollectedSoon(t *testing.T) {
	for _, tt := range []struct {
		what    string
		record  Record
		running bool
		gone    bool
	}{
		{what: "without a record", record: Record{Unlisted: true, EndedInCRI: true}, gone: true},
		{what: "CRI takes it for ended", record: Record{Known: true, EndedInCRI: true, Sandbox: "box"}, gone: true},
		{what: "and its task lives", record: Record{Known: true, Task: true, EndedInCRI: true, Sandbox: "box"}, gone: true},
		{what: "being started", record: Record{Known: true, Sandbox: "box"}},
		{what: "being created", record: Record{Known: true, EndedInCRI: true, Unlisted: true, Sandbox: "box"}},
		{what: "a sandbox that is being created", record: Record{Known: true, EndedInCRI: true, Unlisted: true}},
		{what: "running, not asked for", record: Record{}, running: true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s := someSettings(t)
			note := mkdir(t, filepath.Join(s.StateDir, "runc/k8s.io/it"))
			now := time.Now()
			criteria := LeftoverCriteria{Before: now.Add(-time.Minute), UnownedBefore: now.Add(time.Second), RuntimeBegan: now.Add(-time.Minute)}
			if tt.running {
				criteria.Running = map[string]bool{"it": true}
			}
			var deleted []string
			runtime := answers{deleted: &deleted, record: func(string, string) (Record, error) { return tt.record, nil }}
			got, err := s.CollectShims(t.Context(), runtime, criteria)
			if err != nil || got.Containers == 1 != tt.gone {
				t.Errorf("got %+v, %v, want one container: %v", got, err, tt.gone)
			}
			taken := !exists(note) || len(deleted) > 0 // the runtime removes the note of what it deletes
			if taken != tt.gone {
				t.Errorf("note of runc's there: %v, task deleted: %v, want it gone: %v", exists(note), deleted, tt.gone)
			}
		})
	}
}

// TestSocketOfAShimThatWasKilledGoesSoon: it is its shim that removes a socket.
func TestSocketOfAShimThatWasKilledGoesSoon(t *testing.T) {
	s := someSettings(t)
	dead := deadSocket(t, s)
	now := time.Now()
	got, err := s.CollectShims(t.Context(), knows(), LeftoverCriteria{Before: now.Add(-time.Minute), UnownedBefore: now.Add(time.Second)})
	if err != nil || got != (CollectedShims{Sockets: 1}) || exists(dead) {
		t.Errorf("got %+v, %v; it is there: %v; want one socket, and it gone", got, err, exists(dead))
	}
}
