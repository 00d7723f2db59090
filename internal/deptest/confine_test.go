package deptest

import (
	"go/parser"
	"go/token"
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
}
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	got := confinedIn(fset, f, "test/vm")
	if len(got) != 2 || !strings.HasPrefix(got[0], "3: Pdeathsig is for internal/child alone") || !strings.HasPrefix(got[1], "5: ") {
		t.Errorf("got %q, want lines 3 and 5", got)
	}
	if got := confinedIn(fset, f, "internal/child"); len(got) != 0 {
		t.Errorf("at home: got %q", got)
	}
}
