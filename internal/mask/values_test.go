package mask

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

func TestValuesAreMaskedInAnyForm(t *testing.T) {
	const pw = `gehe"im\ß` + "\n2nd-line-of-it"
	for _, tc := range []struct {
		name   string
		values []string
		text   string
		want   string
	}{
		{"none", nil, "as it is", "as it is"},
		{"an empty one", []string{""}, "as it is", "as it is"},
		{"plain", []string{"s3cret"}, `exec: "s3cret": executable file not found in $PATH`, `exec: "<masked>": executable file not found in $PATH`},
		{"twice", []string{"s3cret"}, "s3crets3cret and s3cret", "<masked> and <masked>"},
		{"at both ends", []string{"s3cret"}, "s3cret x s3cret", "<masked> x <masked>"},
		{"quoted", []string{pw}, fmt.Sprintf("stat %q: no such file", pw), `stat "<masked>": no such file`},
		{"quoted twice", []string{pw}, fmt.Sprintf("%q", fmt.Sprintf("stat %q", pw)), `"stat \"<masked>\""`},
		{"base64", []string{pw}, "payload " + base64.RawStdEncoding.EncodeToString([]byte(pw)) + ".", "payload <masked>."},
		{"a line of it", []string{pw}, "line 2: 2nd-line-of-it", "line 2: <masked>"},
		{"cut at the end", []string{"correct-horse-battery"}, "exec correct-horse-b…", "exec <masked>…"},
		{"the name of a process", []string{"/opt/correct-horse-battery"}, "process correct-horse-b died", "process <masked> died"},
		{"too little of it to tell", []string{"correct-horse"}, "correct", "correct"},
		{"an element of a path", []string{"first/second-element"}, "lstat /a/second-element: not found", "lstat /a/<masked>: not found"},
		{"one in another", []string{"s3cret", "user:s3cret@host"}, "dial user:s3cret@host", "dial <masked>"},
		{"overlapping", []string{"abcdefgh", "efghijkl"}, "x abcdefghijkl y", "x <masked> y"},
		{"no UTF-8", []string{"s3cret\xff-and-more"}, "exec s3cret�-and-more", "exec <masked>"},
		{"short, a word", []string{"a1"}, `exec: "a1": x a1b 1a1 -a1=`, `exec: "<masked>": x a1b 1a1 -<masked>=`},
		{"short, in every word", []string{"e"}, "executable file not found", "executable file not found"},
		{"punctuation", []string{"/", ": ", "\""}, `exec: "/bin/x"`, `exec: "/bin/x"`},
		{"the mask's own word", []string{"masked", "s3cret"}, "masked s3cret", "<masked> <masked>"},
	} {
		if got := NewValues(tc.values...).Mask(tc.text); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := (Values{}).Mask("text"); got != "text" {
		t.Errorf("the zero value: got %q", got)
	}
}

// FuzzAValueDoesNotShow, whatever is around it.
func FuzzAValueDoesNotShow(f *testing.F) {
	f.Add("s3cret", "exec: ", ": not found")
	f.Add("aaaaaaaab", "aaaa", "b")
	f.Fuzz(func(t *testing.T, value, before, after string) {
		if len(value) < minAnywhereLength || strings.Contains(Value, value) {
			return
		}
		got := NewValues(value).Mask(before + value + after)
		if strings.Contains(strings.ReplaceAll(got, Value, "\x00"), value) && !strings.Contains(value, "\x00") {
			t.Errorf("%q in %q: got %q", value, before+value+after, got)
		}
		if before == "" && after == "" && got != Value {
			t.Errorf("%q alone: got %q", value, got)
		}
	})
}
