package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"podd/internal/pod"
	"podd/podconfig"
)

func podYAML(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  containers:\n  - name: c\n    image: " + image + "\n"
}

// fixture is a source at work on a directory.
type fixture struct {
	t    *testing.T
	dir  string
	out  chan podconfig.Snapshot
	last podconfig.Snapshot
	// end stops the source; it is called at the test's end too.
	end func()
}

func watch(t *testing.T, cfg Config) *fixture {
	t.Helper()
	cfg.NodeName = "node1"
	if cfg.CheckFrequency == 0 {
		cfg.CheckFrequency = time.Hour // what is seen is seen by events
	}
	ctx, stop := context.WithCancel(context.Background())
	st := &fixture{t: t, dir: cfg.Path, out: make(chan podconfig.Snapshot)}
	ended := make(chan error, 1)
	go func() { ended <- New(cfg).Run(ctx, st.out) }()
	st.end = sync.OnceFunc(func() {
		stop()
		for {
			select {
			case <-st.out:
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("Run: got %v", err)
				}
				return
			}
		}
	})
	t.Cleanup(st.end)
	st.next()
	return st
}

// patience is when a test gives up.
const patience = time.Minute

func (st *fixture) next() {
	st.t.Helper()
	select {
	case st.last = <-st.out:
	case <-time.After(patience):
		st.t.Fatalf("no snapshot within %v; the last was %s", patience, st.show())
	}
}

func (st *fixture) show() string {
	var parts []string
	for _, d := range st.last.Pods {
		parts = append(parts, strings.TrimSuffix(d.Pod.Name, "-node1")+"="+d.Pod.Spec.Containers[0].Image)
	}
	slices.Sort(parts)
	if st.last.Incomplete {
		parts = append(parts, "incomplete")
	}
	return strings.Join(parts, " ")
}

// until waits for a snapshot with these pods ("name=image", sorted).
func (st *fixture) until(want string) {
	st.t.Helper()
	for st.show() != want {
		select {
		case st.last = <-st.out:
		case <-time.After(patience):
			st.t.Fatalf("got %q with problems %v, want %q", st.show(), st.last.Problems, want)
		}
	}
}

// problem waits for a problem that holds the text.
func (st *fixture) problem(text string) pod.Problem {
	st.t.Helper()
	for {
		for _, p := range st.last.Problems {
			if strings.Contains(p.String(), text) {
				return p
			}
		}
		select {
		case st.last = <-st.out:
		case <-time.After(patience):
			st.t.Fatalf("problems %v, want one with %q", st.last.Problems, text)
		}
	}
}

// swiftly does what podd is to overlook because it takes less than goneDelay. A
// machine that did something else meanwhile has left podd a gap to see; then it is
// done again once podd has told of it.
func (st *fixture) swiftly(do func()) {
	st.t.Helper()
	for range 100 {
		began := time.Now()
		do()
		if time.Since(began) < goneDelay/2 {
			return
		}
		for rest := time.After(10 * goneDelay); rest != nil; {
			select {
			case st.last = <-st.out:
			case <-rest:
				rest = nil
			}
		}
	}
	st.t.Fatalf("this machine never writes a file within %v", goneDelay/2)
}

// quiet checks that nothing is told for a while. A machine that is slow sees less
// in that time, never more.
func (st *fixture) quiet(d time.Duration) {
	st.t.Helper()
	select {
	case st.last = <-st.out:
		st.t.Errorf("got %q, %v, want silence", st.show(), st.last.Problems)
	case <-time.After(d):
	}
}

func (st *fixture) write(name, text string) {
	st.t.Helper()
	if err := os.WriteFile(filepath.Join(st.dir, name), []byte(text), 0o644); err != nil {
		st.t.Fatal(err)
	}
}

func (st *fixture) do(err error) {
	st.t.Helper()
	if err != nil {
		st.t.Fatal(err)
	}
}

// moveIn is how careful programs put a file in place.
func (st *fixture) moveIn(name, text string) {
	st.t.Helper()
	tmp := filepath.Join(st.dir, "."+name+".tmp")
	st.do(os.WriteFile(tmp, []byte(text), 0o644))
	st.do(os.Rename(tmp, filepath.Join(st.dir, name)))
}
