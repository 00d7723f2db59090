package testnode

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAPodOfTheFloorRunsAndLeavesNothing: the raw calls work on this machine,
// the snapshot sees what they make while it is there, and nothing afterwards.
func TestAPodOfTheFloorRunsAndLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("running containers needs root")
	}
	repo, err := RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp("", "pt") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	bundle := Bundle{Bin: filepath.Join(repo, "build/runtime/bin"), Images: filepath.Join(repo, "build/images")}
	node, err := NewNode(t.Context(), base, bundle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	out := filepath.Join(node.Dir, "out")
	if err := os.Mkdir(out, 0o777); err != nil {
		t.Fatal(err)
	}
	marks, err := NewMarks(out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = marks.Close() }()

	before := take(t, node.Scope(nil))
	pod := &FloorPod{
		Name: "one", UID: "uid-1", Image: ImageBusybox, HostDir: out,
		Command:      []string{"/bin/sh", "-c", "trap 'exit 0' TERM; : > /out/one; while :; do sleep 3600 & wait; done"},
		CgroupParent: node.CgroupRoot + "/kubepods/besteffort/poduid-1", LogDir: filepath.Join(node.Dir, "logs", "one"),
	}
	start := time.Now()
	if err := pod.Run(t.Context(), node.CRI); err != nil {
		t.Fatal(err)
	}
	at, err := marks.Wait(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("first instruction after %v", at.Sub(start))
	left := Left(before, take(t, node.Scope(nil)))
	for _, kind := range []string{KindSandbox, KindContainer, KindSnapshot, KindNetNS, KindLink, KindLease, KindMount, KindCgroup, KindProcess, KindPath} {
		found := false
		for _, line := range left {
			found = found || len(line) > len(kind) && line[:len(kind)] == kind
		}
		if !found {
			t.Errorf("a running pod shows no %s in\n%q", kind, left)
		}
	}
	start = time.Now()
	if err := pod.StopContainer(t.Context(), node.CRI, 10*time.Minute); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 5*time.Minute { // half of its grace period
		t.Errorf("the container took %v to end, it does not see SIGTERM", took)
	}
	if err := pod.Remove(t.Context(), node.CRI); err != nil {
		t.Fatal(err)
	}
	for _, line := range Left(before, take(t, node.Scope(nil))) {
		// The pod's cgroup is the agent's to remove, not the runtime's.
		if line != "cgroup: "+pod.CgroupParent+" (in blkio …)" && line[:6] != "cgroup" {
			t.Errorf("left behind: %s", line)
		}
	}
}
