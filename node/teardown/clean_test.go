package teardown

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"podd/bundle"
	"podd/node/bundled"
)

// TestTheDeletionOfTheStateDirectoryStopsAtAMount that appeared after the mount
// table was read.
func TestTheDeletionOfTheStateDirectoryStopsAtAMount(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data, state := filepath.Join(dir, "data"), filepath.Join(dir, "run/podd")
	at, precious := filepath.Join(state, "containerd/rootfs"), filepath.Join(data, "precious")
	for _, d := range []string{data, at} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(precious, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(data, at, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	p := Podd{Runtime: bundled.Runtime{StateDir: state}, Out: &strings.Builder{}}
	if err := p.removeState(t.Context()); err == nil || !strings.Contains(err.Error(), "rootfs is a mount point") {
		t.Errorf("got %v, want it to stop at the mount", err)
	}
	if _, err := os.Lstat(precious); err != nil {
		t.Errorf("what is behind the mount: %v", err)
	}
}

// A containerd that was killed leaves the network namespaces of its sandboxes mounted, and whoever
// lost its podd, too, would have to unmount them by hand.
func TestTheStateDirectoryGoesWithTheNetworkNamespacesInIt(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "run/podd")
	pinned := filepath.Join(bundle.NetNSDir(state), "cni-1")
	if err := os.MkdirAll(filepath.Dir(pinned), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pinned, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc/self/ns/net", pinned, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(pinned, unix.MNT_DETACH) })
	p := Podd{Runtime: bundled.Runtime{StateDir: state}, Out: &strings.Builder{}}
	if err := p.removeState(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(state); !os.IsNotExist(err) {
		t.Errorf("the state directory: got %v, want it gone", err)
	}
}
