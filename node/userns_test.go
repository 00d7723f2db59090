package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADirectoryThatIsClosedToThePodsUsersIsNamed(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "reachable") // t.TempDir is below a closed one
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	state := filepath.Join(dir, "closed", "state")
	if err := os.MkdirAll(state, 0o711); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Dir(state), state} {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkTraversable(state); err != nil {
		t.Errorf("open: got %v", err)
	}
	if err := os.Chmod(filepath.Dir(state), 0o750); err != nil {
		t.Fatal(err)
	}
	want := "the directory " + filepath.Dir(state) + " is closed (mode 0750)"
	if err := checkTraversable(state); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "chmod o+x "+filepath.Dir(state)) {
		t.Errorf("closed: got %v, want %s", err, want)
	}
}
