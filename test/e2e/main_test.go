package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"podd/test/e2e/testnode"
)

// nodes is the pool. A node is made when it is first needed.
var nodes struct {
	free chan *slot
	all  []*slot
	// bundle and its error, found once.
	bundle testnode.Bundle
	err    error
}

// slot is a node, or the place for one.
type slot struct {
	once sync.Once
	node *testnode.Node
	err  error
	// runs counts the tests that had it.
	runs int
}

func TestMain(m *testing.M) {
	os.Exit(mainCode(m))
}

func mainCode(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "test/e2e: not root: every test is skipped, and nothing is tested")
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "pe") // sockets need short paths
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Root in a user namespace is nobody here, and must reach its root file system.
	if err := os.Chmod(dir, 0o711); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	count := 2
	if n, err := strconv.Atoi(os.Getenv("PODD_E2E_NODES")); err == nil && n > 0 {
		count = n
	}
	nodes.bundle, nodes.err = findBundle(dir)
	nodes.free = make(chan *slot, count)
	for range count {
		s := &slot{}
		nodes.all = append(nodes.all, s)
		nodes.free <- s
	}
	base = dir
	code := m.Run()
	for _, s := range nodes.all {
		if s.node == nil {
			continue
		}
		if err := s.node.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "clean up node:", err)
			code = max(code, 1)
		}
	}
	return code
}

// base is the directory of the nodes.
var base string

// findBundle builds podd and finds the runtime beside it.
func findBundle(dir string) (testnode.Bundle, error) {
	repo, err := testnode.RepoRoot()
	if err != nil {
		return testnode.Bundle{}, err
	}
	b := testnode.Bundle{
		Bin: filepath.Join(repo, "build/runtime/bin"), Images: filepath.Join(repo, "build/images"), Podd: filepath.Join(dir, "podd"),
	}
	if err := b.Check(); err != nil {
		return b, err
	}
	if err := buildPodd(repo, &b); err != nil {
		return b, err
	}
	holder, knock, swapper = filepath.Join(dir, "holder"), filepath.Join(dir, "knock"), filepath.Join(dir, "swapper")
	cmd := exec.Command("go", "build", "-o", dir+"/", "./test/e2e/holder", "./test/e2e/knock", "./test/e2e/swapper")
	cmd.Dir, cmd.Env = repo, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("build what pods of tests run: %w\n%s", err, out)
	}
	return b, nil
}

// buildPodd builds podd, with the race detector for PODD_E2E_RACE, or takes the one
// that PODD_TEST_BINARY names, as make test does, which has just built it.
func buildPodd(repo string, b *testnode.Bundle) error {
	race, built := os.Getenv("PODD_E2E_RACE") != "", os.Getenv("PODD_TEST_BINARY")
	if built != "" && !race {
		// A copy, beside which no runtime lies that podd would find by itself.
		if out, err := exec.Command("cp", built, b.Podd).CombinedOutput(); err != nil {
			return fmt.Errorf("take podd from %s: %w\n%s", built, err, out)
		}
		return nil
	}
	args := []string{"build", "-o", b.Podd}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/podd")...)
	cmd.Dir = repo
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build podd: %w\n%s", err, out)
	}
	return nil
}

// holder, knock and swapper are the binaries of test/e2e/holder and its neighbours.
var holder, knock, swapper string

// takeNode waits for a free node and gives it back when the test is over.
func takeNode(t *testing.T) *testnode.Node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("real containers need root")
	}
	if nodes.err != nil {
		t.Fatal(nodes.err)
	}
	s := <-nodes.free
	t.Cleanup(func() { nodes.free <- s })
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		s.node, s.err = testnode.NewNode(ctx, base, nodes.bundle)
	})
	if s.err != nil {
		t.Fatalf("make a node: %v", s.err)
	}
	s.runs++
	return s.node
}
