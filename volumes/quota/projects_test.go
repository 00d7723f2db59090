package quota

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// fileSystem is a fake file system with project quotas.
type fileSystem struct {
	mu      sync.Mutex
	of      map[string]attributes
	counts  map[uint32]projectUsage
	fails   error // of usage
	asked   int
	refuses error // of setProject
}

func newFileSystem() *fileSystem {
	return &fileSystem{of: map[string]attributes{}, counts: map[uint32]projectUsage{}}
}

func (f *fileSystem) attributes(dir *os.File) (attributes, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[dir.Name()], nil
}

func (f *fileSystem) setProject(dir *os.File, id uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuses != nil {
		return f.refuses
	}
	f.of[dir.Name()] = attributes{id, true}
	n := f.counts[id]
	f.counts[id] = projectUsage{n.bytes + 4096, n.inodes + 1, n.limited}
	return nil
}

func (f *fileSystem) usage(_ *os.File, id uint32) (projectUsage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.counts[id], f.fails
}

func on(f *fileSystem, log *bytes.Buffer, files ...string) *Projects {
	return &Projects{kernel: f, reservedIDFiles: files, log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
}

func directory(t *testing.T, in, name string) string {
	t.Helper()
	dir := filepath.Join(in, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A project ID is not assigned if it is in use, has a limit or is named in a file, and a
// directory that has one keeps it.
func TestADirectoryGetsAFreeProjectID(t *testing.T) {
	root := t.TempDir()
	named := filepath.Join(root, "projects")
	if err := os.WriteFile(named, []byte("# a comment: 1879048192\n1879048193:/srv/a:b\n\nshop:1879048194\nnonsense\n-7:x\n99999999999:y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	f := newFileSystem()
	f.counts[firstID] = projectUsage{inodes: 1}
	f.counts[firstID+3] = projectUsage{limited: true}
	f.counts[firstID+4] = projectUsage{bytes: 1}
	p := on(f, log, named, filepath.Join(root, "none"))
	a, b := directory(t, root, "a"), directory(t, root, "b")
	p.Assign(a)
	p.Assign(b)
	p.Assign(a)
	if f.of[a] != (attributes{firstID + 5, true}) || f.of[b] != (attributes{firstID + 6, true}) {
		t.Errorf("got %+v, want the first two IDs that are free", f.of)
	}
	f.counts[firstID+5] = projectUsage{12288, 3, false}
	if n, inodes, known := p.Used(a); n != 12288 || inodes != 3 || !known {
		t.Errorf("got %d bytes, %d inodes (%v)", n, inodes, known)
	}
	if log.Len() > 0 {
		t.Errorf("log: %s", log)
	}
}

// Their IDs are not assigned again before the directories are deleted.
func TestProjectsOfAnEarlierPoddAreKnown(t *testing.T) {
	root, f, log := t.TempDir(), newFileSystem(), &bytes.Buffer{}
	a, b := directory(t, root, "a"), directory(t, root, "b")
	on(f, log).Assign(a)
	again := on(f, log)
	again.Assign(b)
	again.Assign(a)
	if f.of[a].project != firstID || f.of[b].project != firstID+1 {
		t.Errorf("got %+v", f.of)
	}
	if _, _, known := again.Used(a); !known {
		t.Error("after a restart, the usage of a directory is not known")
	}
	delete(f.counts, firstID) // its last file was deleted
	c := directory(t, root, "c")
	on(f, log).Assign(c)
	if f.of[c].project != firstID {
		t.Errorf("got project %d, want the free one", f.of[c].project)
	}
}

func TestConcurrentAssignsGetDifferentProjects(t *testing.T) {
	root, f, log := t.TempDir(), newFileSystem(), &bytes.Buffer{}
	p := on(f, log)
	var all sync.WaitGroup
	for i := range 50 {
		dir := directory(t, root, string(rune('A'+i)))
		all.Go(func() { p.Assign(dir) })
	}
	all.Wait()
	seen := map[uint32]bool{}
	for dir, a := range f.of {
		if seen[a.project] || a.project < firstID {
			t.Errorf("%s has project %d", dir, a.project)
		}
		seen[a.project] = true
	}
	if len(seen) != 50 {
		t.Errorf("got %d projects", len(seen))
	}
}

// Directories without a project, with one of others, with one that is inherited, or that
// new files do not inherit.
func TestTheUsageOfForeignProjectsIsNotUsed(t *testing.T) {
	for name, tc := range map[string]struct{ dir, above attributes }{
		"none":               {},
		"an administrator's": {attributes{7, true}, attributes{}},
		"from above":         {attributes{firstID, true}, attributes{firstID, true}},
		"nothing inherits":   {attributes{firstID, false}, attributes{}},
		"beyond podd's":      {attributes{firstID + numIDs, true}, attributes{}},
	} {
		t.Run(name, func(t *testing.T) {
			root, f, log := t.TempDir(), newFileSystem(), &bytes.Buffer{}
			dir := directory(t, root, "v")
			f.of[dir], f.of[root] = tc.dir, tc.above
			f.counts[tc.dir.project] = projectUsage{1, 1, false}
			p := on(f, log)
			if _, _, known := p.Used(dir); known {
				t.Error("the usage is known")
			}
			p.Assign(dir)
			if tc.dir.project != 0 && f.of[dir] != tc.dir {
				t.Errorf("its project has changed: %+v", f.of[dir])
			}
			if log.Len() > 0 {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// Most file systems have no quotas; only failures are logged.
func TestMissingQuotasAreNotLogged(t *testing.T) {
	for name, tc := range map[string]struct {
		fails, refuses error
		said           bool
	}{
		"no quotas":   {fails: errUnsupported},
		"no ioctl":    {refuses: errUnsupported},
		"count fails": {fails: unix.EIO, said: true},
		"set fails":   {refuses: unix.EPERM, said: true},
	} {
		t.Run(name, func(t *testing.T) {
			f, log := newFileSystem(), &bytes.Buffer{}
			f.fails, f.refuses = tc.fails, tc.refuses
			p, dir := on(f, log), t.TempDir()
			p.Assign(dir)
			if _, _, known := p.Used(dir); known {
				t.Error("the usage is known")
			}
			if said := log.Len() > 0; said != tc.said {
				t.Errorf("log: %q", log)
			}
		})
	}
}

func TestTheSearchForAProjectIDIsBounded(t *testing.T) {
	f, log := newFileSystem(), &bytes.Buffer{}
	for i := range uint32(maxTries) {
		f.counts[firstID+i] = projectUsage{inodes: 1}
	}
	p, dir := on(f, log), t.TempDir()
	if err := p.assign(dir); err == nil || f.asked != maxTries {
		t.Errorf("got %v after %d", err, f.asked)
	}
	if err := p.assign(dir); err != nil || f.of[dir].project != firstID+maxTries {
		t.Errorf("got %v, project %d: want the search to continue where it ended", err, f.of[dir].project)
	}
}

func TestADirectoryThatIsALinkIsNotFollowed(t *testing.T) {
	f, log, link := newFileSystem(), &bytes.Buffer{}, filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	p := on(f, log)
	if err := p.assign(link); err == nil || len(f.of) > 0 {
		t.Errorf("got %v, %v", err, f.of)
	}
	if _, err := p.used(link + "/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// It may have no project quotas for the test's directory, unless PODD_TEST_QUOTAS says
// prjquota or noquota: test/vm mounts a file system so. If it has, they must count a file.
func TestTheRunningKernel(t *testing.T) {
	p := New(slog.New(slog.DiscardHandler))
	dir := t.TempDir()
	err := p.assign(dir)
	none := errors.Is(err, errUnsupported)
	if must := os.Getenv("PODD_TEST_QUOTAS"); must != "" && none != (must == "noquota") {
		t.Fatalf("mounted with %s: got %v", must, err)
	}
	if none {
		if _, _, known := p.Used(dir); known {
			t.Error("there are no quotas, but the usage is known")
		}
		t.Log("this file system has none")
		return
	}
	if err != nil {
		if os.Geteuid() != 0 && errors.Is(err, fs.ErrPermission) {
			t.Skip("quotas are for root")
		}
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/file", make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	bytes, inodes, known := p.Used(dir)
	if bytes < 1<<20 || inodes != 2 || !known {
		t.Errorf("got %d bytes, %d inodes (%v)", bytes, inodes, known)
	}
	t.Logf("%d bytes, %d inodes", bytes, inodes)
}
