package deptest

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

func TestFunctionsTakeFewParametersAndStructsNoContext(t *testing.T) {
	stat(t)
	found, err := CheckShape("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

func TestTheShapesThatAreFound(t *testing.T) {
	const text = `package p
import "context"
func five(a, b, c int, d, e string) {}
func six(a, b, c int, d, e string, f ...any) {}
func (s *kept) seven(_, _, _, _, _, _, _ int) {}
var eight = func(int, int, int, int, int, int, int, int) {}
type i interface { nine(a, b, c, d, e, f, g, h, i int); none() }
type kept struct { n int; ctx context.Context }
type good struct { run func(context.Context) }
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	got := checkFile(fset, f)
	want := []string{"six takes 6 parameters", "seven takes 7", "func takes 8", "nine takes 9", "kept keeps a context"}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %d findings", got, len(want))
	}
	for i, w := range want {
		if got[i].line != 4+i || !strings.HasPrefix(got[i].fault, w) {
			t.Errorf("got %+v, want %q in line %d", got[i], w, 4+i)
		}
	}
}
