package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"podd/config"
)

// TestAnIdentityIsMadeOnceAndKept: also by two processes at once. A file
// without one is rejected with what to do.
func TestAnIdentityIsMadeOnceAndKept(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	var ids [8]string
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			s, err := loadInstanceIdentity(root)
			if err != nil {
				t.Error(err)
			}
			ids[i] = s.id
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || len(id) != 2*instanceBytes {
			t.Fatalf("got %q, want one identity for all", ids)
		}
	}
	if other, err := loadInstanceIdentity(filepath.Join(t.TempDir(), "root")); err != nil || other.id == ids[0] {
		t.Errorf("another root directory: got %q (%v), want another identity", other, err)
	}
	if left, err := filepath.Glob(filepath.Join(root, ".instance*")); err != nil || len(left) > 0 {
		t.Errorf("got %v (%v) left", left, err)
	}
	file := filepath.Join(root, "instance")
	for _, text := range []string{"", "\n", "two words", "x\x00"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadInstanceIdentity(root); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove") {
			t.Errorf("%q: got %v, want an error that names the file", text, err)
		}
	}
}

func TestASocketBehindASymlinkIsTheSame(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run", filepath.Join(dir, "var-run")); err != nil {
		t.Fatal(err)
	}
	a, b := realSocket("unix://"+dir+"/run/x.sock"), realSocket("unix://"+dir+"/var-run/x.sock")
	if a != b || a != "unix://"+dir+"/run/x.sock" {
		t.Errorf("got %s and %s, want one", a, b)
	}
}

// TestLogsThatAnEarlierPoddWasToRemoveAreTakenOver: an earlier podd kept its
// checkpoints in another directory.
func TestLogsThatAnEarlierPoddWasToRemoveAreTakenOver(t *testing.T) {
	n := &Node{cfg: &config.Config{RootDir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	n.adoptLogRemovals() // nothing there
	if err := os.MkdirAll(filepath.Join(n.cfg.RootDir, "graves", "uid.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.adoptLogRemovals()
	if _, err := os.Stat(filepath.Join(n.logRemovalsDir(), "uid.json")); err != nil {
		t.Error(err)
	}
}
