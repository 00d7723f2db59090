package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"podd/test/e2e/testnode"
)

// TestTheClientOfTheRuntimeOnTheRealRuntime lends its containerd to cri's own
// test, which is skipped elsewhere: commands that hang or leave processes behind,
// limits of a running container that change, logs that are opened anew, what a
// refused start says, and what no manifest of a file can ask for.
func TestTheClientOfTheRuntimeOnTheRealRuntime(t *testing.T) {
	e := prepare(t)
	repo, err := testnode.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "^TestRealRuntime$", "./cri")
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "PODD_TEST_RUNTIME_ENDPOINT="+e.node.Containerd.Endpoint())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestRealRuntime") {
		t.Errorf("%v\n%s", err, out)
	}
}
