package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

// TestADirectoryForRootAloneLeavesTheWayOpen: the way to another one leads through its
// parents.
func TestADirectoryForRootAloneLeavesTheWayOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a/b")
	for range 2 {
		if err := MkdirPrivate(dir); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Dir(dir): 0o711} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}
