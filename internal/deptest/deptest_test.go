package deptest

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// list runs go list in the module's root.
func list(t *testing.T, args ...string) []Package {
	t.Helper()
	stat(t)
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Imports,TestImports"}, args...)...)
	cmd.Dir = "../.."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, stderr.String())
	}
	var out []Package
	for dec := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
}

// stat looks at each file that go list reads, of which the cache of test results
// knows nothing else: it hid a new import until a run without a cache.
func stat(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "build" || d.Name() == ".git" {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".go" {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPoddLinksOnlyWhatItMay(t *testing.T) {
	pkgs := list(t, "-deps", "./cmd/podd")
	const least = 300
	if len(pkgs) < least {
		t.Fatalf("got %d packages, want the whole program", len(pkgs))
	}
	for _, v := range CheckClosure(pkgs) {
		t.Error(v)
	}
	linked := map[string]bool{}
	for _, p := range pkgs {
		linked[p.ImportPath] = true
	}
	for path := range allowedUpstream {
		if !linked[upstream+path] {
			t.Errorf("allowedUpstream has a row for %s, which is not linked any more: remove it", path)
		}
	}
}

func TestPackagesKnowOnlyWhomTheyMay(t *testing.T) {
	pkgs := list(t, "./...")
	for _, v := range slices.Concat(CheckArrows(pkgs), StaleArrows(pkgs)) {
		t.Error(v)
	}
}

// TestTheGuardCanFail feeds each kind of forbidden import to the checks.
func TestTheGuardCanFail(t *testing.T) {
	one := func(path string, imports ...string) []Package {
		return []Package{{ImportPath: path, Imports: imports}}
	}
	for name, tc := range map[string]struct {
		got  []string
		want string
	}{
		"the kubelet itself":     {CheckClosure(one("k8s.io/kubernetes/pkg/kubelet")), "has no row in allowedUpstream"},
		"typed clientset":        {CheckClosure(one("k8s.io/client-go/kubernetes/typed/core/v1")), "33 MB"},
		"other client-go":        {CheckClosure(one("k8s.io/client-go/dynamic")), "add a row"},
		"cadvisor":               {CheckClosure(one("github.com/google/cadvisor/manager")), "housekeeping"},
		"libcontainer":           {CheckClosure(one("github.com/opencontainers/runc/libcontainer")), "bundle"},
		"the importer is named":  {CheckClosure([]Package{{ImportPath: "podd/x", Imports: []string{"testing"}}, {ImportPath: "testing"}}), "imported by podd/x"},
		"upstream past the gate": {CheckArrows(one("podd/agent", "k8s.io/kubernetes/pkg/apis/core")), "only podd/internal/podapi may"},
		"siblings":               {CheckArrows(one("podd/agent", "podd/cri")), "siblings meet in node"},
		"from an internal test":  {CheckArrows([]Package{{ImportPath: "podd/agent", TestImports: []string{"podd/cri/critest"}}}), "siblings"},
		"the words know nobody":  {CheckArrows(one("podd/internal/pod", "podd/agent")), "siblings"},
		"a row below another":    {CheckArrows(one("podd/node/capacity", "podd/agent")), "siblings"},
		"a package without row":  {CheckArrows(one("podd/surprise")), "has no row in arrows"},
		"a test of the whole":    {CheckArrows(one("podd/test/vm", "podd/cri")), "siblings"},
		"a tool":                 {CheckArrows(one("podd/hack/mutate", "podd/cri")), "siblings"},
		"the bundle":             {CheckArrows(one("podd/bundle", "podd/cni")), "siblings"},
	} {
		if len(tc.got) != 1 || !strings.Contains(tc.got[0], tc.want) {
			t.Errorf("%s: got %q, want one violation with %q", name, tc.got, tc.want)
		}
	}
}

func TestARowWithoutAnImportIsStale(t *testing.T) {
	got := strings.Join(StaleArrows([]Package{{ImportPath: "podd/agent", Imports: []string{"podd/agent/plan"}}}), "\n")
	for text, want := range map[string]bool{
		"podd/cri, which is no package":             true,
		"lets podd/agent import podd/agent/backoff": true,
		"lets podd/agent import podd/agent/plan":    false,
	} {
		if strings.Contains(got, text) != want {
			t.Errorf("%q: want %t in\n%s", text, want, got)
		}
	}
}

func TestWhatIsAllowedIsAllowed(t *testing.T) {
	if got := CheckClosure([]Package{{ImportPath: "k8s.io/client-go/features"}, {ImportPath: "k8s.io/kubernetes/pkg/apis/core/v1"}, {ImportPath: "fmt"}}); len(got) > 0 {
		t.Errorf("got %q", got)
	}
	if got := CheckArrows([]Package{{ImportPath: "podd/agent", Imports: []string{"podd/agent/plan", "podd/internal/pod", "fmt"}}, {ImportPath: "podd/cmd/podd", Imports: []string{"podd/node"}}, {ImportPath: "podd/node", Imports: []string{"podd/cri"}}}); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}
