package text

import "strings"

// Cut shortens a text that is longer than most bytes to its first most bytes, between
// characters, and appends an ellipsis.
func Cut(s string, most int) string { return CutWith(s, most, "…") }

// CutWith is Cut with another mark at the end, which does not count.
func CutWith(s string, most int, mark string) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + mark
}
