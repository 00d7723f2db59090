package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
)

// TestAFewFaultsBreakNoPromise is a short run of make chaos, always the same one:
// what it comes to must not depend on how fast the machine is.
func TestAFewFaultsBreakNoPromise(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("real containers need root")
	}
	repo, err := testnode.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, b := range [][]string{{"podd", "./cmd/podd"}, {"chaos", "./test/chaos"}} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(dir, b[0]), b[1])
		cmd.Dir, cmd.Env = repo, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	var out strings.Builder
	err = run(t.Context(), options{
		seed: 5, faults: 15, settle: 5, out: &out, keep: filepath.Join(dir, "kept"), self: filepath.Join(dir, "chaos"),
		bundle: testnode.Bundle{Podd: filepath.Join(dir, "podd"), Bin: filepath.Join(repo, "build/runtime/bin"), Images: filepath.Join(repo, "build/images")},
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "kept-5", "podd.log"))
		t.Fatalf("%v\n%s\nthe end of podd's log:\n%s", err, out.String(), log[max(0, len(log)-6000):])
	}
	t.Log(out.String())
}

// TestStepsFollowFromTheSeed: what comes, and what strikes, is drawn from seed
// and step alone.
func TestStepsFollowFromTheSeed(t *testing.T) {
	drawn, all := map[string]bool{}, slices.Concat(faults, memberFaults)
	for step := range uint64(2000) {
		a, b := draw(choices(7, step), all), draw(choices(7, step), all)
		if a.name != b.name {
			t.Fatalf("step %d: got %s, then %s", step, a.name, b.name)
		}
		drawn[a.name] = true
	}
	if len(drawn) != len(all) {
		t.Errorf("got %d of %d kinds of fault in 2000 draws", len(drawn), len(all))
	}
	for _, k := range kinds {
		made := func() *v1.Pod {
			return k.build("p", builder{rng: choices(7, 1), out: "/o", self: "/s", life: "p-1", port: 80})
		}
		one, again := made(), made()
		if one.String() != again.String() || len(one.Spec.Containers) == 0 || one.Spec.Containers[0].Name != "main" {
			t.Errorf("%s: got %v, then %v", k.name, one, again)
		}
	}
}

// TestTheTestDetectsWhatItChecksFor: a lock that is held twice, an emptyDir that is
// not empty, and a lock that somebody holds.
func TestTheTestDetectsWhatItChecksFor(t *testing.T) {
	w := &world{dir: t.TempDir()}
	for _, d := range []string{dirLocks, dirRuns} {
		if err := os.MkdirAll(filepath.Join(w.out(), d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	violations := func() string {
		text, _ := os.ReadFile(filepath.Join(w.out(), fileViolations))
		return string(text)
	}
	first, err := hold(w.out(), "a.main", "a-1")
	if err != nil || violations() != "" || !w.held()["a.main"] {
		t.Fatalf("one container: got %v, %q, held %v", err, violations(), w.held())
	}
	second, err := hold(w.out(), "a.main", "a-2")
	if err != nil || !strings.Contains(violations(), "a.main of a-2 began while another ran") {
		t.Errorf("a second one: got %v, %q", err, violations())
	}
	_, _ = first.Close(), second.Close()
	if w.held()["a.main"] {
		t.Error("both have ended: the lock is held still")
	}
	onlyOwn(w.out(), filepath.Join(w.out(), dirRuns), "a.main", "a-1")
	before := violations()
	onlyOwn(w.out(), filepath.Join(w.out(), dirRuns), "b.main", "a-1")
	if violations() != before {
		t.Errorf("two containers of one life: got %q", violations())
	}
	onlyOwn(w.out(), filepath.Join(w.out(), dirRuns), "a.main", "a-2")
	if !strings.Contains(violations(), "a.main of a-2 found a-1.a.main in its emptyDir") {
		t.Errorf("what another life left: got %q", violations())
	}
}
