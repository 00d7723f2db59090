package deptest

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

func TestConfinedNamesStayAtHome(t *testing.T) {
	stat(t)
	found, err := CheckConfined("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

func TestAConfinedNameElsewhereIsFound(t *testing.T) {
	const text = `package p
import "syscall"
var literal = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
func assign(a *syscall.SysProcAttr) {
	a.Pdeathsig = 0
	poke := make(chan struct{}, 1)
	conn, err := grpc.NewClient("x")
}
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		"test/vm/a.go":             {"3: Pdeathsig is for internal/child alone", "5: Pdeathsig"},
		"volumes/a_test.go":        {"3: ", "5: "},
		"volumes/a.go":             {"3: ", "5: ", "6: make(chan struct{}, 1) is for ", "7: grpc.NewClient is for "},
		"internal/wake/a.go":       {"3: ", "5: ", "7: "},
		"internal/child/a.go":      {"6: ", "7: "},
		"prober/grpc.go":           {"3: ", "5: ", "6: "},
		"internal/child/a_test.go": {},
	} {
		got := confinedIn(fset, f, path)
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
