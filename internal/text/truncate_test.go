package text

import "testing"

func TestATextIsCutBetweenCharacters(t *testing.T) {
	for _, tc := range []struct {
		s    string
		most int
		want string
	}{{"", 0, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aéé", 4, "aé…"}, {"aéé", 5, "aéé"}, {"日本", 2, "…"}} {
		if got := Truncate(tc.s, tc.most); got != tc.want {
			t.Errorf("%q at %d: got %q, want %q", tc.s, tc.most, got, tc.want)
		}
	}
	if got := TruncateWith("abcd", 2, "..."); got != "ab..." {
		t.Errorf("got %q", got)
	}
}
