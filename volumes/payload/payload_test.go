package payload

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func text(data string) File { return File{Data: []byte(data), Mode: 0o644} }

// version returns a payload whose files all have the same content.
func version(n int) map[string]File {
	one := fmt.Sprintf("version %d", n)
	return map[string]File{"a": text(one), "sub/b": text(one), "sub/deep/c": text(one), fmt.Sprintf("only-%d", n): text(one)}
}

func mustWrite(t *testing.T, dir string, files map[string]File) (changed bool) {
	t.Helper()
	changed, err := Write(t.Context(), dir, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// mustShow checks what readers see.
func mustShow(t *testing.T, dir string, files map[string]File) {
	t.Helper()
	if err := shows(dir, files); err != nil {
		t.Error(err)
	}
}

func shows(dir string, files map[string]File) error {
	seen := map[string]bool{}
	root := filepath.Join(dir, dataLink)
	err := filepath.WalkDir(root+"/", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			seen[strings.TrimPrefix(path, root+"/")] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	if want := slices.Sorted(maps.Keys(files)); !slices.Equal(slices.Sorted(maps.Keys(seen)), want) {
		return fmt.Errorf("got files %v, want %v", slices.Sorted(maps.Keys(seen)), want)
	}
	for name, f := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != string(f.Data) {
			return fmt.Errorf("%s: got %q (%v), want %q", name, got, err, f.Data)
		}
	}
	return nil
}

// mustBeClean checks that there is one version, and nothing else but its links.
func mustBeClean(t *testing.T, dir string, files map[string]File) {
	t.Helper()
	inUse, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{dataLink: true, inUse: true}
	for name := range files {
		first, _, _ := strings.Cut(name, "/")
		want[first] = true
	}
	if got := entries(t, dir); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("the directory has %v, want %v", got, slices.Sorted(maps.Keys(want)))
	}
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestTheLayoutIsUpstreams(t *testing.T) {
	dir := t.TempDir()
	files := map[string]File{"key": text("1"), "sub/key": text("2")}
	if HasVersion(dir) {
		t.Error("InUse is true for an empty directory")
	}
	if !mustWrite(t, dir, files) {
		t.Error("the first version: changed is false")
	}
	mustShow(t, dir, files)
	mustBeClean(t, dir, files)
	for name, want := range map[string]string{"key": "..data/key", "sub": "..data/sub"} {
		if to, err := os.Readlink(filepath.Join(dir, name)); err != nil || to != want {
			t.Errorf("%s points to %q (%v), want %q", name, to, err, want)
		}
	}
	to, _ := os.Readlink(filepath.Join(dir, "..data"))
	if at, err := time.Parse("..2006_01_02_15_04_05", to[:strings.LastIndexByte(to, '.')]); err != nil || time.Since(at) > time.Hour {
		t.Errorf("..data points to %q: %v", to, err)
	}
	if !HasVersion(dir) {
		t.Error("InUse is false")
	}
}

func TestModesDoNotDependOnTheUmask(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := t.TempDir()
	mustWrite(t, dir, map[string]File{"r": {Mode: 0o400}, "w": {Mode: 0o666}, "none": {}, "sub/x": {Mode: 0o755}})
	for name, want := range map[string]fs.FileMode{"r": 0o400, "w": 0o666, "none": 0, "sub/x": 0o755, "sub": fs.ModeDir | 0o755, "..data": fs.ModeDir | 0o755} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: got %v (%v), want %v", name, info.Mode(), err, want)
		}
	}
}

func TestTheGroupMayReadAndIsSetBeforeReadersSeeIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing groups needs root")
	}
	dir, group := t.TempDir(), int64(4321)
	files := map[string]File{"r": {Mode: 0o400}, "sub/x": {Mode: 0o600}}
	if _, err := Write(t.Context(), dir, files, &group); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"r": 0o440, "sub/x": 0o640, "sub": fs.ModeDir | fs.ModeSetgid | 0o755, "..data": fs.ModeDir | fs.ModeSetgid | 0o755} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if gid := info.Sys().(*syscall.Stat_t).Gid; gid != 4321 || info.Mode() != want {
			t.Errorf("%s: got group %d mode %v, want %v", name, gid, info.Mode(), want)
		}
	}
	if changed, err := Write(t.Context(), dir, files, &group); err != nil || changed {
		t.Errorf("equal content with a group: changed %v (%v)", changed, err)
	}
}

func TestAFileMayBelongToAUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing owners needs root")
	}
	dir := t.TempDir()
	files := map[string]File{"token": {Data: []byte("x"), Mode: 0o600, UID: 1234}, "other": text("y")}
	mustWrite(t, dir, files)
	for name, want := range map[string]uint32{"token": 1234, "other": 0} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != want {
			t.Errorf("%s belongs to %d, want %d", name, uid, want)
		}
	}
	if mustWrite(t, dir, files) {
		t.Error("equal content with an owner: changed")
	}
}

func TestEqualContentChangesNothingOnDisk(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, version(1))
	before := snapshot(t, dir)
	if mustWrite(t, dir, version(1)) {
		t.Error("Write reports a change")
	}
	if after := snapshot(t, dir); !maps.Equal(before, after) {
		t.Errorf("got %v, had %v", after, before)
	}
}

// snapshot returns every file's inode and time of change.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		out[path] = fmt.Sprint(st.Ino, st.Ctim)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDifferentContentIsWritten(t *testing.T) {
	base := map[string]File{"a": text("one"), "sub/b": text("two")}
	for name, change := range map[string]func(dir string, files map[string]File) error{
		"another text":      func(_ string, f map[string]File) error { f["a"] = text("ONE"); return nil },
		"a longer text":     func(_ string, f map[string]File) error { f["a"] = text("one more"); return nil },
		"a shorter text":    func(_ string, f map[string]File) error { f["a"] = text("on"); return nil },
		"another mode":      func(_ string, f map[string]File) error { f["a"] = File{Data: []byte("one"), Mode: 0o600}; return nil },
		"a file more":       func(_ string, f map[string]File) error { f["sub/c"] = text("x"); return nil },
		"a file less":       func(_ string, f map[string]File) error { delete(f, "sub/b"); return nil },
		"a directory less":  func(_ string, f map[string]File) error { delete(f, "sub/b"); f["sub"] = text("two"); return nil },
		"a directory more":  func(_ string, f map[string]File) error { delete(f, "a"); f["a/b"] = text("one"); return nil },
		"a mode changed":    func(d string, _ map[string]File) error { return os.Chmod(d+"/a", 0o666) },
		"a dir's mode":      func(d string, _ map[string]File) error { return os.Chmod(d+"/sub", 0o700) },
		"a text tampered":   func(d string, _ map[string]File) error { return os.WriteFile(d+"/a", []byte("eno"), 0) },
		"a file put there":  func(d string, _ map[string]File) error { return os.WriteFile(d+"/sub/new", nil, 0o600) },
		"a version gone":    func(d string, _ map[string]File) error { return os.Remove(d + "/..data") },
		"a link for a file": func(d string, _ map[string]File) error { return relink(d+"/..data/a", "sub/b") },
		"..data elsewhere":  func(d string, _ map[string]File) error { return relink(d+"/..data", "/etc") },
		"..data dangling":   func(d string, _ map[string]File) error { return relink(d+"/..data", "..2020") },
		"..data to itself":  func(d string, _ map[string]File) error { return relink(d+"/..data", "..data") },
		"..data a file": func(d string, _ map[string]File) error {
			return errors.Join(os.Remove(d+"/..data"), os.WriteFile(d+"/..data", nil, 0))
		},
		"..data a dir": func(d string, _ map[string]File) error {
			return errors.Join(os.Remove(d+"/..data"), os.Mkdir(d+"/..data", 0))
		},
		"a link elsewhere": func(d string, _ map[string]File) error { return relink(d+"/a", "/etc/passwd") },
		"a file for a link": func(d string, _ map[string]File) error {
			return errors.Join(os.Remove(d+"/a"), os.WriteFile(d+"/a", nil, 0))
		},
		"a link missing": func(d string, _ map[string]File) error { return os.Remove(d + "/sub") },
	} {
		t.Run(name, func(t *testing.T) {
			dir, files := t.TempDir(), maps.Clone(base)
			mustWrite(t, dir, base)
			if err := change(dir, files); err != nil {
				t.Fatal(err)
			}
			if !mustWrite(t, dir, files) {
				t.Error("nothing was written")
			}
			mustShow(t, dir, files)
			mustBeClean(t, dir, files)
		})
	}
}

func relink(path, to string) error { return errors.Join(os.Remove(path), os.Symlink(to, path)) }

func TestInvalidPathsAreRejected(t *testing.T) {
	for path, words := range map[string]string{
		"":                               "must not be empty",
		"/etc/passwd":                    "must be relative path",
		"..":                             "must not contain '..'",
		"a/../../b":                      "must not contain '..'",
		"a/..":                           "must not contain '..'",
		"..data":                         "must not start with '..'",
		"..2026/x":                       "must not start with '..'",
		"./..x":                          "must not start with '..'",
		".":                              "must name a file",
		"a\x00b":                         "zero byte",
		strings.Repeat("n", 256):         "less than or equal to 255",
		strings.Repeat("n/", 2049) + "n": "less than or equal to 4096",
	} {
		dir := t.TempDir()
		_, err := Write(t.Context(), dir, map[string]File{"good": text("x"), path: text("x")}, nil)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%.20q: got %v, want it to say %q", path, err, words)
		}
		if names := entries(t, dir); len(names) > 0 {
			t.Errorf("%.20q: left %v", path, names)
		}
	}
}

func TestUnusualNamesAreAccepted(t *testing.T) {
	dir := t.TempDir()
	files := map[string]File{".hidden": text("1"), "a..b": text("2"), "x/..y": text("3"), strings.Repeat("n", 255): text("4")}
	mustWrite(t, dir, files)
	mustShow(t, dir, files)
}

func TestCollidingPathsAreRejected(t *testing.T) {
	for _, paths := range [][]string{{"a", "a/b"}, {"a", "./a"}, {"a/b", "a//b"}, {"a/b", "a/b/c"}} {
		files := map[string]File{}
		for _, p := range paths {
			files[p] = text(p)
		}
		if _, err := Write(t.Context(), t.TempDir(), files, nil); err == nil {
			t.Errorf("%q: no error", paths)
		}
	}
}

func TestMountPointsOfOtherVolumesStay(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"nested", "key"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]File{"key": text("x"), "other": text("y")}
	for range 2 {
		mustWrite(t, dir, files)
	}
	mustWrite(t, dir, map[string]File{"other": text("z")})
	if names := entries(t, dir); !slices.Contains(names, "nested") || !slices.Contains(names, "key") {
		t.Errorf("got %v, want nested and key among them", names)
	}
}

// faults makes one step fail, or also all after it (a crash).
type faults struct {
	at    int
	crash bool
	n     int
	steps []string
}

func (f *faults) step(what string) error {
	f.n++
	f.steps = append(f.steps, what)
	if f.n == f.at || f.crash && f.n > f.at && f.at > 0 {
		return unix.ENOSPC
	}
	return nil
}

func writeWith(t *testing.T, dir string, files map[string]File, f *faults) (bool, error) {
	w := &writer{dir: dir, fault: f.step}
	return w.write(t.Context(), files)
}

func TestAFailedStepLeavesTheOldVersionAndNoLeftovers(t *testing.T) {
	eachFault(t, false, func(t *testing.T, dir string, f *faults, changed bool, err error) {
		if err == nil {
			t.Fatal("got no error")
		}
		if changed { // removing the old version failed
			mustShow(t, dir, version(2))
			return
		}
		mustShow(t, dir, version(1))
		mustBeClean(t, dir, version(1))
	})
}

func TestACrashAtAnyStepLeavesAWholeVersionAndIsRepaired(t *testing.T) {
	eachFault(t, true, func(t *testing.T, dir string, f *faults, _ bool, _ error) {
		old, new := shows(dir, version(1)), shows(dir, version(2))
		if old != nil && new != nil {
			t.Errorf("after %v: neither version is whole: %v; %v", f.steps[f.at-1], old, new)
		}
	})
}

// eachFault updates version 1 to 2 with a fault at each step, and then repairs it.
func eachFault(t *testing.T, crash bool, check func(*testing.T, string, *faults, bool, error)) {
	for at := 1; ; at++ {
		dir, f := t.TempDir(), &faults{at: at, crash: crash}
		mustWrite(t, dir, version(1))
		changed, err := writeWith(t, dir, version(2), f)
		if f.n < at {
			if at < 15 || err != nil {
				t.Fatalf("only %d steps: %v (%v)", f.n, f.steps, err)
			}
			return
		}
		t.Run(fmt.Sprintf("%d %s", at, f.steps[at-1]), func(t *testing.T) {
			check(t, dir, f, changed, err)
			mustWrite(t, dir, version(2))
			mustShow(t, dir, version(2))
			mustBeClean(t, dir, version(2))
			mustWrite(t, dir, version(1)) // leftovers must not break the next Write
			mustBeClean(t, dir, version(1))
		})
	}
}

func TestAFailedFirstVersionLeavesNothing(t *testing.T) {
	for at := 1; ; at++ {
		dir, f := t.TempDir(), &faults{at: at}
		_, err := writeWith(t, dir, version(1), f)
		if f.n < at {
			return
		}
		if err == nil {
			t.Errorf("step %d: no error", at)
		}
		if names := entries(t, dir); len(names) > 0 {
			t.Errorf("step %d (%s): left %v", at, f.steps[at-1], names)
		}
	}
}

func TestAFullDiskLeavesTheOldVersion(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,nr_inodes=16"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	small := map[string]File{"a": text(strings.Repeat("1", 20<<10))}
	mustWrite(t, dir, small)
	many := map[string]File{}
	for i := range 20 {
		many[fmt.Sprint(i)] = text("")
	}
	for name, files := range map[string]map[string]File{"no room": {"a": text(strings.Repeat("2", 100<<10))}, "no inodes": many} {
		for range 3 {
			if changed, err := Write(t.Context(), dir, files, nil); !errors.Is(err, unix.ENOSPC) || changed {
				t.Errorf("%s: got %v, changed %v", name, err, changed)
			}
			mustShow(t, dir, small)
			mustBeClean(t, dir, small)
		}
	}
	small["a"] = text(strings.Repeat("3", 20<<10))
	mustWrite(t, dir, small)
	mustShow(t, dir, small)
}

func TestReadersSeeWholeVersionsOnly(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, version(0))
	var stop atomic.Bool
	var reads atomic.Int64
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				if err := readPair(dir); err != nil {
					t.Error(err)
					return
				}
				reads.Add(1)
			}
		})
	}
	for n := 1; n < 50 || reads.Load() < 50; n++ {
		mustWrite(t, dir, version(n))
	}
	stop.Store(true)
	readers.Wait()
}

// readPair reads two files of one version, as programs that watch ..data do.
func readPair(dir string) error {
	root, err := os.OpenRoot(filepath.Join(dir, "..data"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // opened between the swap and the removal of the old
	}
	if err != nil {
		return err
	}
	defer root.Close()
	a, errA := root.ReadFile("a")
	b, errB := root.ReadFile("sub/deep/c")
	if errA == nil && errB == nil && string(a) != string(b) {
		return fmt.Errorf("one version has %q and %q", a, b)
	}
	if whole, err := os.ReadFile(filepath.Join(dir, "a")); err == nil && !strings.HasPrefix(string(whole), "version ") {
		return fmt.Errorf("half of a file: %q", whole)
	}
	return nil
}
