package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const sample = `package sample

import "strings"

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
`

func TestWhatIsChanged(t *testing.T) {
	next := 0
	_, found, err := rewrite("sample.go", []byte(sample), &next)
	if err != nil {
		t.Fatal(err)
	}
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
	if want := (tally{killed: 12, survived: 5, unreached: 4}); got != want {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if after, err := os.ReadFile("pkg/sample.go"); err != nil || string(after) != sample {
		t.Errorf("the source was changed: %v", err)
	}
	if err := run(t.Context(), []string{"none"}, 90, 1); err == nil {
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

const changes = `11: len(words) == 0 && !strings.Contains(words[0], "x"): || for &&
11: len(words) == 0: turned around
11: n < low || len(words) == 0 && !strings.Contains(words[0], "x"): && for ||
11: n < low: the bound moved
11: n < low: turned around
12: !strings.Contains(words[0], "x"): turned around
13: false: the other is returned
13: low + 1: - for +
14: n > high: the bound moved
14: n > high: turned around
15: min(n, most, high): max
15: n = min(n, most, high): left out
18: i < len(words): the bound moved
18: i < len(words): turned around
19: words[i] == "stop": turned around
20: break: left out
22: i * 2: + for *
22: out -= i * 2: left out
24: flag(ok) != false: turned around
24: out - n: + for -
28: n++: left out
`
