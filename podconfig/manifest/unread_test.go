package manifest

import (
	"strconv"
	"strings"
	"testing"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func podJSON(name string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
}

func podFlow(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: i}]}\n"
}

// TestNothingOfAFileIsLeftUnreadInSilence: what is there after the first document
// is another pod, or a problem that says on which line and a failure for which
// the last good set stays. Once, the text behind a failed JSON parse was dropped.
func TestNothingOfAFileIsLeftUnreadInSilence(t *testing.T) {
	a, b := podJSON("a"), podJSON("b")
	for name, tc := range map[string]struct {
		text, pods string
		// problem is part of what is said, line where; "" and 0 for nothing.
		problem string
		line    int
	}{
		"two objects":                 {a + b, "a b", "", 0},
		"two objects, blank between":  {a + "\n\n" + b + "\n", "a b", "", 0},
		"comment behind an object":    {a + " # the end\n", "a", "", 0},
		"truncated second object":     {a + "\n" + b[:40], "a", "it is cut off at the end", 2},
		"truncated second, early":     {a + "\n{", "a", "it is cut off at the end", 2},
		"comma behind the first":      {a + ",\n" + b, "a", "what follows is not another one", 1},
		"brace too many":              {a + "}\n" + b, "a", "what follows is not another one", 1},
		"words behind an object":      {a + "\nand more\n", "a", "what follows is not another one", 2},
		"comma at the end of a field": {strings.Replace(a, "}]}}", "}],}}", 1) + "\n" + b, "", "another document begins on this line", 2},
		"comma within, alone":         {strings.Replace(a, "}]}}", "}],}}", 1), "a", "", 0}, // which YAML allows
		"YAML behind an object":       {a + "\n" + podFlow("b"), "a", "what follows is not another one", 2},
		"object behind YAML":          {podFlow("a") + b + "\n", "", "not valid YAML", 5},
		"garbage behind flow YAML":    {"{" + strings.Trim(strings.ReplaceAll(podFlow("a"), "\n", ", "), ", ") + "}\n}\n", "", "what follows does not belong to it", 2},
		"comment above two objects":   {"# two\n" + a + "\n" + b, "", "another document begins on this line", 3},
		"less indented":               {"  kind: Pod\napiVersion: v1\n", "", "what follows does not belong to it", 2},
		"a value and more":            {"# x\n[a]\n[b]\n", "", "what follows does not belong to it", 3},
		"CR":                          {strings.ReplaceAll(podFlow("a")+"---\n"+podFlow("b"), "\n", "\r"), "a b", "", 0},
		"NEL":                         {strings.ReplaceAll(podFlow("a")+"---\n"+podFlow("b"), "\n", "\u0085"), "a b", "", 0},
		"LS and PS":                   {podFlow("a") + "\u2028---\u2029" + podFlow("b"), "a b", "", 0},
		"mixed ends":                  {podFlow("a") + "---\r\n" + podFlow("b") + "---\r" + podFlow("c"), "a b c", "", 0},
		"CR with a fault":             {strings.ReplaceAll(podFlow("a")+"---\n"+podFlow("b")+"bogus: 1\n", "\n", "\r"), "a", `unknown field "bogus"`, 10},
		"mark before the second":      {podFlow("a") + "---\n\ufeff" + podFlow("b"), "a b", "", 0},
		"mark before the dashes":      {"\ufeff" + podFlow("a") + "\ufeff---\n# b\n\ufeff" + podFlow("b"), "a b", "", 0},
		"mark before the second JSON": {"\ufeff" + a + "\n\ufeff" + b, "a b", "", 0},
		"mark, then a fault":          {podFlow("a") + "---\n# one\n\n\ufeff" + podFlow("b") + "bogus: 1\n", "a", `unknown field "bogus"`, 12},
		"a stream beyond 3 MiB":       {strings.Repeat(" ", 1000) + strings.Repeat(a+strings.Repeat(" ", 2000)+"\n", 1) + strings.Repeat("\n", 4<<20) + b, "a b", "", 0},
		"an object beyond 3 MiB":      {`{"a":"` + strings.Repeat("x", 3<<20) + `"}` + "\n" + b, "b", "more than the limit of 3 MiB", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := Decode([]byte(tc.text), options("x"))
			var pods []string
			for _, d := range r.Pods {
				pods = append(pods, strings.TrimSuffix(d.Pod.Name, "-node1"))
			}
			if got := strings.Join(pods, " "); got != tc.pods {
				t.Errorf("got pods %q, want %q; %v", got, tc.pods, r.Problems)
			}
			if tc.problem == "" {
				if len(r.Problems) > 0 || len(r.Failed) > 0 {
					t.Errorf("got %v, want no problem", r.Problems)
				}
				return
			}
			if len(r.Problems) != 1 || len(r.Failed) != 1 || !strings.Contains(r.Problems[0].Message, tc.problem) || r.Problems[0].Line != tc.line {
				t.Errorf("got %v and %d failures, want %q on line %d", r.Problems, len(r.Failed), tc.problem, tc.line)
			}
		})
	}
}

// TestAJSONStreamMayBeLong has many small pods, 4 MiB together, as a row of
// objects: the bound is one of an object.
func TestAJSONStreamMayBeLong(t *testing.T) {
	var text strings.Builder
	const pods = 1000
	for i := range pods {
		text.WriteString(strings.Replace(podJSON("p"+itoa(int64(i))), `"image":"i"`, `"image":"i","args":["`+strings.Repeat("x", 4<<10)+`"]`, 1) + "\n")
	}
	if r := Decode([]byte(text.String()), options("x")); len(r.Pods) != pods || len(r.Problems) > 0 {
		t.Errorf("got %d pods of %d, %v", len(r.Pods), pods, r.Problems)
	}
}
