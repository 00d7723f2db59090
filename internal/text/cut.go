package text

import "strings"

// Cut returns the first most bytes of a text that is longer, between characters, and an
// ellipsis.
func Cut(s string, most int) string { return CutWith(s, most, "…") }

// CutWith is Cut with another mark at the end, which does not count.
func CutWith(s string, most int, mark string) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + mark
}
