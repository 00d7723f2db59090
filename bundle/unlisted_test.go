package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// criDirs makes what CRI has on disk of a container or sandbox, last changed at a
// time.
func criDirs(t *testing.T, s *Settings, kind, id string, at time.Time) []string {
	t.Helper()
	var dirs []string
	for _, base := range []string{s.RootDir, s.StateDir} {
		dir := mkdir(t, filepath.Join(base, criPlugin, kind, id))
		if err := os.Chtimes(dir, at, at); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// A containerd that is started while its disk is full cannot load its containers:
// it keeps their records and directories, and CRI never lists them.
func TestWhatCRIDoesNotListIsDeletedWithItsDirectories(t *testing.T) {
	began := time.Now().Add(-time.Hour) // of the runtime
	before := began.Add(10 * time.Minute)
	for _, tt := range []struct {
		what, kind string
		record     Record
		fails      bool // containerd does not respond
		at         time.Time
		gone       bool
		deleted    bool // its records
	}{
		{what: "no record of a container", kind: "containers", record: Record{Unlisted: true, EndedInCRI: true}, at: began.Add(time.Minute), gone: true},
		{what: "no record of a sandbox", kind: "sandboxes", record: Record{Unlisted: true, EndedInCRI: true}, at: began.Add(time.Minute), gone: true},
		{what: "image volumes of a sandbox without a record", kind: "image-volumes", record: Record{Unlisted: true, EndedInCRI: true}, at: began.Add(time.Minute), gone: true},
		{what: "image volumes of a sandbox that CRI lists", kind: "image-volumes", record: Record{Known: true, EndedInCRI: true}, at: began.Add(-time.Minute)},
		{what: "a record that was not loaded", kind: "containers", record: Record{Known: true, Unlisted: true, EndedInCRI: true}, at: began.Add(-time.Minute), gone: true, deleted: true},
		{what: "a sandbox's record that was not loaded", kind: "sandboxes", record: Record{Known: true, Unlisted: true, EndedInCRI: true}, at: began.Add(-time.Minute), gone: true, deleted: true},
		{what: "being made by this containerd", kind: "containers", record: Record{Known: true, Unlisted: true, EndedInCRI: true}, at: began.Add(time.Minute)},
		{what: "just begun", kind: "containers", record: Record{Unlisted: true, EndedInCRI: true}, at: before.Add(time.Second)},
		{what: "it runs still", kind: "containers", record: Record{Known: true, Task: true, Unlisted: true, EndedInCRI: true}, at: began.Add(-time.Minute)},
		{what: "CRI lists it, and it has exited", kind: "containers", record: Record{Known: true, EndedInCRI: true}, at: began.Add(-time.Minute)},
		{what: "CRI lists it, and has deleted the record", kind: "containers", record: Record{}, at: began.Add(-time.Minute)},
		{what: "no answer", kind: "containers", fails: true, at: began.Add(-time.Minute)},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s := someSettings(t)
			dirs := criDirs(t, s, tt.kind, "lost", tt.at)
			var deleted []string
			runtime := answers{deleted: &deleted, record: func(namespace, id string) (Record, error) {
				if namespace != "k8s.io" || id != "lost" {
					t.Errorf("asked for %s in %s", id, namespace)
				}
				if tt.fails {
					return Record{}, errors.New("no answer")
				}
				return tt.record, nil
			}}
			got, err := s.CollectShims(t.Context(), runtime, allBefore(before, began))
			if (err != nil) != tt.fails {
				t.Errorf("got error %v", err)
			}
			want := CollectedShims{}
			if tt.gone {
				want.Directories = 1
			}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			for _, dir := range dirs {
				if exists(dir) == tt.gone {
					t.Errorf("%s: there: %v, want gone: %v", dir, exists(dir), tt.gone)
				}
			}
			if slices.Contains(deleted, "lost") != tt.deleted {
				t.Errorf("records deleted: %v, want that: %v", deleted, tt.deleted)
			}
		})
	}
}

// TestTheOldestDirectoryTellsTheAge: when it is started, containerd writes into
// that of a container that it cannot load.
func TestTheOldestDirectoryTellsTheAge(t *testing.T) {
	s := someSettings(t)
	began := time.Now().Add(-time.Hour)
	dirs := criDirs(t, s, "containers", "lost", began.Add(-time.Minute))
	now := time.Now()
	if err := os.Chtimes(dirs[0], now, now); err != nil {
		t.Fatal(err)
	}
	var deleted []string
	runtime := answers{deleted: &deleted, record: func(string, string) (Record, error) {
		return Record{Known: true, Unlisted: true, EndedInCRI: true}, nil
	}}
	got, err := s.CollectShims(t.Context(), runtime, allBefore(began, began))
	if want := (CollectedShims{Directories: 1}); err != nil || got != want || len(deleted) != 1 || exists(dirs[0]) || exists(dirs[1]) {
		t.Errorf("got %+v, %v, records of %v deleted; want %+v, those of one", got, err, deleted, want)
	}
}

// TestNothingIsDeletedAcrossAMount: of a lost sandbox /dev/shm is mounted.
func TestNothingIsDeletedAcrossAMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	s := someSettings(t)
	now := time.Now()
	dirs := criDirs(t, s, "sandboxes", "lost", now.Add(-time.Hour))
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shm := mkdir(t, filepath.Join(dirs[1], "shm"))
	if err := unix.Mount(other, shm, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(shm, unix.MNT_DETACH) })
	runtime := answers{record: func(string, string) (Record, error) { return Record{Unlisted: true, EndedInCRI: true}, nil }}
	if got, err := s.CollectShims(t.Context(), runtime, allBefore(now.Add(time.Second), now)); err != nil || got != (CollectedShims{Directories: 1}) {
		t.Errorf("got %+v, %v, want one directory", got, err)
	}
	if exists(dirs[1]) || !exists(filepath.Join(other, "kept")) {
		t.Errorf("directory there: %v, want it gone; what was mounted there: %v, want it kept", exists(dirs[1]), exists(filepath.Join(other, "kept")))
	}
}
