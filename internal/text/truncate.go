package text

import "strings"

// Truncate shortens a text that is longer than most bytes to its first most bytes, between
// characters, and appends an ellipsis.
func Truncate(s string, most int) string { return TruncateWith(s, most, "…") }

// TruncateWith is Truncate with another mark at the end, which does not count.
func TruncateWith(s string, most int, mark string) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + mark
}
