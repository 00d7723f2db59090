package atomicfile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWhatIsWrittenDurablySurvivesAPowerFailure: of a disk as it is the moment after,
// with all that the kernel has not written to it yet missing.
func TestWhatIsWrittenDurablySurvivesAPowerFailure(t *testing.T) {
	image, mounted := aDisk(t)
	path := filepath.Join(mounted, "state.json")
	if err := Write(filepath.Join(mounted, "volatile.json"), []byte("lost"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		if err := WriteDurably(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := files(t, afterPowerFailure(t, image)); got["state.json"] != text {
			t.Errorf("got %q, want state.json with %q", got, text)
		}
	}
	// The test would not notice a sync that is missing, had the kernel written all by itself.
	if err := Write(path, []byte("three"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := files(t, afterPowerFailure(t, image)); got["state.json"] == "three" {
		t.Skip("this kernel writes at once")
	}
}

func TestADurableWriteLeavesNothingBeside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	for _, text := range []string{"a longer one", "two"} {
		if err := WriteDurably(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := files(t, dir); len(got) != 1 || got["state.json"] != text {
			t.Errorf("got %q, want %q alone", got, text)
		}
	}
	if err := WriteDurably(filepath.Join(dir, "none", "x"), nil, 0o600); err == nil {
		t.Error("a file was written into no directory")
	}
}

// aDisk is an ext4 file system in a file.
func aDisk(t *testing.T) (image, mounted string) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v: %s", err, out)
	}
	return image, mountImage(t, image)
}

// afterPowerFailure mounts a copy of what the disk has.
func afterPowerFailure(t *testing.T, image string) (mounted string) {
	t.Helper()
	content, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	survives := filepath.Join(t.TempDir(), "survives")
	if err := os.WriteFile(survives, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return mountImage(t, survives)
}

func mountImage(t *testing.T, image string) (mounted string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	mounted = t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop", image, mounted).CombinedOutput(); err != nil {
		t.Skipf("no loop devices here: %s", strings.TrimSpace(string(out)))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mounted, 0); err != nil {
			t.Errorf("unmount %s: %v", mounted, err)
		}
	})
	return mounted
}
