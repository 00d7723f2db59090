package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const sample = `package sample

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

const most = 2 * 8

type flag bool

func clamp(n, low, high int, words []string) (out int, ok bool) {
	switch {
	case n < low || len(words) == 0 &&
		!strings.Contains(words[0], "x"):
		return low + 1, false
	case n > high:
		n = min(n,
			most, high)
	}
	for i := 0; i < len(words); i++ {
		if words[i] == "stop" {
			break
		}
		out -= i * 2
	}
	return out - n, flag(ok) != false
}

func never(n int) int {
	n++
	return n
}

type box struct{ age time.Duration }

func wait(ctx context.Context, from, to string, log *slog.Logger) (b box, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	log.Info("waiting", "longest", 5*time.Second, "less", most-len(to))
	if err := move(ctx, from, to); err != nil {
		return box{age: time.Second}, fmt.Errorf("move: %w", err)
	}
	return b, nil
}

func move(ctx context.Context, _, _ string) error { return ctx.Err() }
`

func TestWhatIsChanged(t *testing.T) {
	p := &code{fset: token.NewFileSet(), trees: map[string]*ast.File{}}
	var err error
	if p.trees["sample.go"], err = parser.ParseFile(p.fset, "sample.go", sample, parser.SkipObjectResolution); err != nil {
		t.Fatal(err)
	}
	var imported []string
	for _, i := range p.trees["sample.go"].Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		imported = append(imported, path)
	}
	packages, err := list(t.Context(), imported...)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.check(packages); err != nil {
		t.Fatal(err)
	}
	next := 0
	_, found := p.rewrite("sample.go", []byte(sample), &next)
	var got []string
	for _, m := range found {
		got = append(got, m.String())
	}
	slices.Sort(got)
	var want []string
	for line := range strings.Lines(changes) {
		want = append(want, "sample.go:"+strings.TrimSuffix(line, "\n"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// TestChangesAreTriedOneByOne compiles all changes of a package at once and sees
// which of them its tests notice.
func TestChangesAreTriedOneByOne(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":           "module sample\n\ngo 1.26\n",
		"pkg/sample.go":    sample,
		"pkg/half_test.go": half,
	} {
		if err := os.MkdirAll("pkg", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := target{dir: "pkg", skip: "Machine"}.try(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if want := (tally{killed: 12, survived: 5, unreached: 14}); got != want {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if after, err := os.ReadFile("pkg/sample.go"); err != nil || string(after) != sample {
		t.Errorf("the source was changed: %v", err)
	}
	if err := run(t.Context(), []string{"none"}, bars{90, 85}, 1); err == nil {
		t.Error("an unknown package: got no error")
	}
}

const half = `package sample

import "testing"

func TestClamp(t *testing.T) {
	if got, ok := clamp(1, 2, 9, nil); got != 3 || ok {
		t.Error(got, ok)
	}
	if got, _ := clamp(12, 2, 9, []string{"a", "stop"}); got != -9 {
		t.Error(got)
	}
}

func TestMachine(t *testing.T) { t.Error("is skipped") }
`

const changes = `17: len(words) == 0 && !strings.Contains(words[0], "x"): || for &&
17: len(words) == 0: turned around
17: n < low || len(words) == 0 && !strings.Contains(words[0], "x"): && for ||
17: n < low: the bound moved
17: n < low: turned around
18: !strings.Contains(words[0], "x"): turned around
19: false: the other is returned
19: low + 1: - for +
20: n > high: the bound moved
20: n > high: turned around
21: min(n, most, high): max
21: n = min(n, most, high): left out
24: i < len(words): the bound moved
24: i < len(words): turned around
25: words[i] == "stop": turned around
26: break: left out
28: i * 2: + for *
28: out -= i * 2: left out
30: flag(ok) != false: turned around
30: out - n: + for -
34: n++: left out
41: 5*time.Second: + for *
41: 5*time.Second: longer
42: defer cancel(): left out
44: err != nil: turned around
44: from: swapped with to
45: fmt.Errorf("move: %w", err): another error
45: fmt.Errorf("move: %w", err): no error
45: time.Second: longer
50: ctx.Err(): another error
50: ctx.Err(): no error
`
