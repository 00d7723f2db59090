package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"", []string{""}},
		{"one two three", []string{"one two", "three"}},
		{"a /very/long/path/of/a/manifest b", []string{"a", "/very/long/path/of/a/manifest", "b"}},
		{"exactly8 x", []string{"exactly8", "x"}},
	} {
		if got := wrap(tt.text, 8); !slices.Equal(got, tt.want) {
			t.Errorf("%q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestSentencesAreWrappedAtTheTerminalsWidth(t *testing.T) {
	var b strings.Builder
	paragraph(&b, 2, "/etc/podd/manifests/web.yaml:12: unknown field", 36)
	paragraph(&b, 2, "never wrapped in a pipe, however long it may be", 0)
	paragraph(&b, 2, "nor where there is no room for it", 12)
	want := `  /etc/podd/manifests/web.yaml:12:
    unknown field
  never wrapped in a pipe, however long it may be
  nor where there is no room for it
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	if got := shorten("größer", 5); got != "grö …" {
		t.Errorf("shorten: got %q", got)
	}
}

func TestPrintable(t *testing.T) {
	if got := oneLine("a\nb\x1b[31m\u009bc\td\u202ee\u2028f"); got != "a b?[31m?c d?e?f" {
		t.Errorf("got %q", got)
	}
}
