package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"podd/test/e2e/testnode"
)

// TestPodsWithSecretsComeAndGoWhilePoddIsKilled is a short run of make chaos
// STORM=200: nothing is left of them, and what is not podd's stays.
func TestPodsWithSecretsComeAndGoWhilePoddIsKilled(t *testing.T) {
	chaos(t, "-storm", "12", "-for", "20s", "-kills", "4", "-seed", "9")
}

// TestManyPodsComeAtOnceAndGoAtOnce is make storm with few pods: podd is killed shortly
// before they go once, and containerd while they go.
func TestManyPodsComeAtOnceAndGoAtOnce(t *testing.T) {
	chaos(t, "-flood", "110", "-seed", "9")
}

// chaos runs test/chaos on a node of its own.
func chaos(t *testing.T, args ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("real containers need root")
	}
	t.Parallel()
	if nodes.err != nil {
		t.Fatal(nodes.err)
	}
	s := <-nodes.free // it has a node of its own, and takes the processor of one
	t.Cleanup(func() { nodes.free <- s })
	repo, err := testnode.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	chaos := filepath.Join(dir, "chaos")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", chaos, "./test/chaos")
	build.Dir, build.Env = repo, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), chaos, append(args,
		"-podd", nodes.bundle.Podd, "-bundle", nodes.bundle.Bin, "-images", nodes.bundle.Images, "-keep", filepath.Join(dir, "kept"))...)
	out, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "every promise held") {
		log, _ := os.ReadFile(filepath.Join(dir, "kept-9", "podd.log"))
		t.Fatalf("%v\n%s\nthe end of podd's log:\n%s", err, out, log[max(0, len(log)-6000):])
	}
	t.Logf("%s", out[max(0, len(out)-1000):])
}
