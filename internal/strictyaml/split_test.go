package strictyaml

import (
	"bytes"
	"testing"
	"time"

	"podd/internal/perftest"
)

// TestLinesWithoutLFCostNoMoreThanOthers: a search for LF at each line reads the rest of
// a text that has none, some hundred times the cost here.
func TestLinesWithoutLFCostNoMoreThanOthers(t *testing.T) {
	split := func(lineBreak string) func() time.Duration {
		text := bytes.Repeat([]byte("a: b"+lineBreak), 100_000)
		return func() time.Duration {
			began := time.Now()
			n := 0
			for range Lines(text) {
				n++
			}
			if n != 100_000 {
				t.Fatalf("%d lines", n)
			}
			return time.Since(began)
		}
	}
	control := split("\n")
	for _, lineBreak := range []string{"\r", "\u0085", "\u2028"} {
		if got := perftest.Compare(3, 30, split(lineBreak), control); got.Ratio() > 30 {
			t.Errorf("lines that end in %q: %v", lineBreak, got)
		}
	}
}
