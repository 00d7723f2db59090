package bundle

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// stateDir is a state directory, below which the test may mount.
func stateDir(t *testing.T, below ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range below {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func mount(t *testing.T, source, target string) {
	t.Helper()
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

// containerd that is killed while it creates a container with a user namespace leaves such a mount.
func TestWhatAKilledRuntimeLeavesInItsTemporaryDirectoryIsRemoved(t *testing.T) {
	state := stateDir(t, "tmp/ovl-idmapped1/0", "tmp/containerd-mount2", "layers")
	layer := filepath.Join(state, "layers/file")
	if err := os.WriteFile(layer, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	mount(t, filepath.Dir(layer), filepath.Join(state, "tmp/ovl-idmapped1/0"))
	s := &Settings{StateDir: state}
	if err := s.ClearTemp(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(state, "tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("got %v, %v, want an empty directory", left, err)
	}
	if _, err := os.Stat(layer); err != nil {
		t.Errorf("what was mounted: %v", err)
	}
}

func TestTheRuntimesNetworkNamespacesAreReleasedAndNoOtherMount(t *testing.T) {
	const netns = "containerd/io.containerd.grpc.v1.cri/netns"
	state := stateDir(t, netns, "containerd/rootfs", "data")
	pinned, other := filepath.Join(state, netns, "cni-1"), filepath.Join(state, "containerd/rootfs")
	if err := os.WriteFile(pinned, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	mount(t, "/proc/self/ns/net", pinned)
	mount(t, filepath.Join(state, "data"), other)
	if err := ReleaseMounts(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{pinned: false, other: true} {
		if is, err := mountinfo.Mounted(path); err != nil || is != want {
			t.Errorf("%s: mounted: got %t, %v, want %t", path, is, err, want)
		}
	}
}
