package ownership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

const group = 4321

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("changing groups needs root")
	}
}

func stat(t *testing.T, path string) (gid uint32, mode uint32) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("lstat %s: %v", path, err)
	}
	return st.Gid, st.Mode & 0o7777
}

func put(t *testing.T, path string, mode uint32) {
	t.Helper()
	var err error
	if strings.HasSuffix(path, "/") {
		err = os.Mkdir(path, 0o700)
	} else {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err == nil {
		err = unix.Chmod(path, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func mustOwn(t *testing.T, v Volume) {
	t.Helper()
	v.Group = group
	if err := v.Own(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestEverythingGetsTheGroupAndItsPermissions(t *testing.T) {
	asRoot(t)
	for _, c := range []struct {
		readOnly        bool
		file, dir, root uint32
	}{{false, 0o660, 0o2770, 0o2770}, {true, 0o640, 0o2750, 0o2750}} {
		dir := filepath.Join(t.TempDir(), "v") + "/"
		put(t, dir, 0o700)
		put(t, dir+"sub/", 0o700)
		put(t, dir+"sub/file", 0o600)
		put(t, dir+"suid", 0o4711)
		put(t, dir+"enough", 0o4770) // chown clears the setuid bit
		if err := unix.Mkfifo(dir+"fifo", 0o600); err != nil {
			t.Fatal(err)
		}
		var files atomic.Int64
		mustOwn(t, Volume{Dir: dir, ReadOnly: c.readOnly, Processed: &files})
		for path, want := range map[string]uint32{"": c.root, "sub": c.dir, "sub/file": c.file, "fifo": c.file, "suid": 0o4711 | c.file, "enough": 0o4770} {
			if gid, mode := stat(t, dir+path); gid != group || mode != want {
				t.Errorf("read-only %v: %q: got group %d mode %o, want %d and %o", c.readOnly, path, gid, mode, group, want)
			}
		}
		if files.Load() != 6 {
			t.Errorf("got %d files counted, want 6", files.Load())
		}
	}
}

func TestOnRootMismatchChecksOnlyTheRoot(t *testing.T) {
	asRoot(t)
	for name, c := range map[string]struct {
		gid     int
		mode    uint32
		changes bool
	}{
		"matching":         {group, 0o2770, false},
		"more permissions": {group, 0o2777, false},
		"another group":    {group + 1, 0o2770, true},
		"no setgid":        {group, 0o770, true},
		"less permissions": {group, 0o2750, true},
		"not searchable":   {group, 0o2760, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "v") + "/"
			put(t, dir, 0o700)
			put(t, dir+"file", 0o600)
			if err := os.Chown(dir, -1, c.gid); err != nil {
				t.Fatal(err)
			}
			if err := unix.Chmod(dir, c.mode); err != nil {
				t.Fatal(err)
			}
			mustOwn(t, Volume{Dir: dir, OnRootMismatch: true})
			if gid, _ := stat(t, dir+"file"); (gid == group) != c.changes {
				t.Errorf("the file has group %d, want changed: %v", gid, c.changes)
			}
			if gid, mode := stat(t, dir); gid != group || mode&0o2770 != 0o2770 {
				t.Errorf("the root has group %d and mode %o", gid, mode)
			}
		})
	}
}

// An interrupted change must leave the root unchanged, or OnRootMismatch would never
// change the rest.
func TestAnInterruptedChangeIsRepeated(t *testing.T) {
	asRoot(t)
	dir := filepath.Join(t.TempDir(), "v") + "/"
	put(t, dir, 0o700)
	for i := range 3 {
		put(t, fmt.Sprintf("%s%d/", dir, i), 0o700)
		put(t, fmt.Sprintf("%s%d/file", dir, i), 0o600)
	}
	why := errors.New("the pod goes")
	ctx, cancel := context.WithCancelCause(t.Context())
	turns := 0
	v := Volume{Dir: dir, Group: group, OnRootMismatch: true, Acquire: func(context.Context) (func(), error) {
		if turns++; turns == 4 {
			cancel(why)
		}
		return func() {}, nil
	}}
	if err := v.Own(ctx); !errors.Is(err, why) {
		t.Fatalf("got %v, want the context's cause", err)
	}
	v.Acquire = nil
	mustOwn(t, v)
	for i := range 3 {
		if gid, _ := stat(t, fmt.Sprintf("%s%d/file", dir, i)); gid != group {
			t.Errorf("file %d has group %d", i, gid)
		}
	}
}

func TestNothingOutsideTheVolumeIsChanged(t *testing.T) {
	asRoot(t)
	base := t.TempDir() + "/"
	dir, outside := base+"v/", base+"outside/"
	put(t, dir, 0o700)
	put(t, outside, 0o700)
	put(t, outside+"file", 0o600)
	put(t, dir+"mnt/", 0o700)
	for name, to := range map[string]string{"abs": outside + "file", "dir": outside, "up": "../outside", "loop": "loop", "gone": "nowhere"} {
		if err := os.Symlink(to, dir+name); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(outside, dir+"mnt", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir+"mnt", unix.MNT_DETACH) }()
	mustOwn(t, Volume{Dir: dir})
	for _, path := range []string{outside, outside + "file"} {
		if gid, mode := stat(t, path); gid == group || mode&0o070 != 0 {
			t.Errorf("%s was changed: group %d mode %o", path, gid, mode)
		}
	}
	if gid, _ := stat(t, dir+"abs"); gid != group {
		t.Errorf("the link itself has group %d, want %d", gid, group)
	}
	if err := os.Symlink(outside, base+"root"); err != nil {
		t.Fatal(err)
	}
	if err := (Volume{Dir: base + "root", Group: group}).Own(t.Context()); err == nil {
		t.Error("a root that is a link was followed")
	}
}

// A container may replace a directory with a link while the volume is changed.
func TestADirectoryReplacedByALinkIsNotFollowed(t *testing.T) {
	asRoot(t)
	base := t.TempDir() + "/"
	dir, outside := base+"v/", base+"outside/"
	put(t, dir, 0o700)
	put(t, outside, 0o700)
	put(t, outside+"file", 0o600)
	put(t, dir+"real/", 0o700)
	put(t, dir+"real/file", 0o600)
	if err := os.Symlink(outside, dir+"link"); err != nil {
		t.Fatal(err)
	}
	stop := atomic.Bool{}
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for !stop.Load() {
			_ = unix.Renameat2(unix.AT_FDCWD, dir+"real", unix.AT_FDCWD, dir+"link", unix.RENAME_EXCHANGE)
		}
	})
	for range 500 {
		if err := (Volume{Dir: dir, Group: group}).Own(t.Context()); err != nil {
			t.Errorf("a concurrent change: %v", err)
			break
		}
	}
	stop.Store(true)
	swapper.Wait()
	if gid, mode := stat(t, outside+"file"); gid == group || mode != 0o600 {
		t.Errorf("the file outside was changed: group %d mode %o", gid, mode)
	}
}

func TestATreeDeeperThanTheLongestPathIsChanged(t *testing.T) {
	asRoot(t)
	base := filepath.Join(t.TempDir(), "v")
	put(t, base+"/", 0o700)
	name := strings.Repeat("d", 200)
	fd, err := unix.Open(base, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 60 { // 12,000 bytes
		if err := unix.Mkdirat(fd, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	defer unix.Close(fd)
	mustOwn(t, Volume{Dir: base})
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Gid != group {
		t.Errorf("the deepest has group %d (%v)", st.Gid, err)
	}
}

func TestAnImmutableFileIsSkipped(t *testing.T) {
	asRoot(t)
	dir := filepath.Join(t.TempDir(), "v") + "/"
	put(t, dir, 0o700)
	put(t, dir+"fixed", 0o600)
	put(t, dir+"other", 0o600)
	if out, err := exec.Command("chattr", "+i", dir+"fixed").CombinedOutput(); err != nil {
		t.Skipf("chattr +i does not work here: %s", out)
	}
	defer func() { _ = exec.Command("chattr", "-i", dir+"fixed").Run() }()
	mustOwn(t, Volume{Dir: dir})
	if gid, _ := stat(t, dir+"other"); gid != group {
		t.Errorf("the other file has group %d", gid)
	}
	if gid, _ := stat(t, dir); gid != group {
		t.Errorf("the root has group %d", gid)
	}
}
