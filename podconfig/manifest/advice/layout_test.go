package advice

import (
	"fmt"
	"strings"
	"testing"
)

// TestLayout: code lines are shown as number, text, and ^ below where values
// begin.
func TestLayout(t *testing.T) {
	for name, tc := range map[string]struct{ text, want, slip string }{
		"fields and entries": {text: "a: b # c\n\n# d\n- e: f\n  - g\n", want: `1 a: b 
  ^  ^
4 - e: f
  ^ ^  ^
5   - g
    ^ ^`},
		"a block": {text: "- run: |\n    a: b\n\t\n  c: d\n", want: `1 - run: |
  ^ ^
4   c: d
    ^  ^`},
		"a block in a list": {text: "- >-  # folded\n  a: b\n- c\n", want: `1 - >-  # folded
  ^
3 - c
  ^ ^`},
		"a text in quotes over lines": {text: "a: \"b\n c: d\n e\"\nf: 'it''s'\n", want: `1 a: "b
  ^  ^
3  e"

4 f: 'it''s'
  ^  ^`},
		"brackets": {text: "a: [b, {c: d,\n e:f}]\ng: *h\ni: &j k\n", want: `1 a: [b, {c: d,
  ^  ^^  ^^  ^
2  e:f}]
   ^ ^
3 g: *h
  ^  ^
4 i: &j k
  ^  ^  ^`},
		"a quote that ends too late":     {text: "a: \"b\nc: \"d\"\n", slip: `" 1-2`},
		"a quote that ends too early":    {text: "a: 'it's'\n", slip: "' 1-1"},
		"a quote within brackets":        {text: "a: ['b', 'c' d]\n", slip: "' 1-1"},
		"quotes that end well":           {text: "'a': \"b\\\"\" # c\nd: ['e', \"f\"]\n'g' : h\n"},
		"quotes within a plain text":     {text: "a: it's 5\" of \"snow\" today\nb: c\n"},
		"quotes in a comment or a block": {text: "a: b # it's\nc: |\n  it's 'x'y\nd: e\n"},
	} {
		l := layoutOf([]byte(tc.text))
		var got []string
		for _, c := range l.code {
			marks := []byte(strings.Repeat(" ", len(c.text)+1))
			for _, at := range c.starts {
				marks[at] = '^'
			}
			got = append(got, fmt.Sprintf("%d %s\n%s", c.number, c.text, strings.TrimRight("  "+string(marks), " ")))
		}
		if text := strings.Join(got, "\n"); tc.want != "" && text != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, text, tc.want)
		}
		slip := ""
		if q := l.misquoted; q != nil {
			slip = fmt.Sprintf("%c %d-%d", q.mark, q.begin, q.end)
		}
		if slip != tc.slip {
			t.Errorf("%s: got the slip %q, want %q", name, slip, tc.slip)
		}
	}
}
