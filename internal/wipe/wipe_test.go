package wipe

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTreeDeletesAllAndFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tree/a/b/c"))
	write(t, filepath.Join(dir, "other/data"))
	if err := os.Symlink(filepath.Join(dir, "other"), filepath.Join(dir, "tree/link")); err != nil {
		t.Fatal(err)
	}
	if err := Tree(t.Context(), dir, "tree"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "tree")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree: got %v, want it gone", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "other/data")); err != nil {
		t.Errorf("what a link leads to: %v", err)
	}
	for _, parent := range []string{dir, filepath.Join(dir, "none")} {
		if err := Tree(t.Context(), parent, "tree"); err != nil {
			t.Errorf("nothing there in %s: got %v, want nil", parent, err)
		}
	}
}

// What is mounted by another name of a directory is the same to the kernel, and
// was not in a comparison of names: /var/run for /run.
func TestTreeStopsAtAMountBehindALink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	data, point := filepath.Join(dir, "data"), filepath.Join(dir, "tree/point")
	write(t, filepath.Join(data, "file"))
	if err := os.MkdirAll(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(data, point, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
	err := Tree(t.Context(), link, "tree")
	if crossing, ok := errors.AsType[*MountError](err); !ok || crossing.Path != filepath.Join(link, "tree/point") {
		t.Errorf("got %v, want a MountError of tree/point", err)
	}
	if _, err := os.Stat(filepath.Join(data, "file")); err != nil {
		t.Errorf("what was mounted: %v", err)
	}
}
