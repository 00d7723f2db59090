package mask

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MinPartLength is the shortest part of a longer value, in bytes, that is masked: a message may
// have only its beginning, as the kernel has of a process's name, or one element of a path.
const MinPartLength = 8

const (
	// minAnywhereLength is the length of the shortest value, in bytes, that is masked anywhere
	// in a text. A shorter value is masked only as a word of its own: the value "a" must
	// not turn a message into stars.
	minAnywhereLength = 4
	// maxParts bounds the lines and elements of one value.
	maxParts = 256
)

// Values are confidential values to find in texts. The zero value has none.
type Values struct {
	// long values are sorted: the two next to a text have most in common with it.
	long []string
	// middle and short values only count as a whole.
	middle, short map[string]bool
}

// NewValues makes Values of these values and of the forms that others may make of them:
// quoted as in Go, JSON, URLs or base64, without invalid UTF-8, or a single line or path
// element. A short value without a letter or a digit looks like punctuation and is left
// out.
func NewValues(values ...string) Values {
	v := Values{middle: map[string]bool{}, short: map[string]bool{}}
	for _, value := range values {
		for _, form := range encodings(value) {
			v.add(form)
		}
	}
	slices.Sort(v.long)
	v.long = slices.Compact(v.long)
	return v
}

func (v *Values) add(form string) {
	switch n := len(form); {
	case n >= MinPartLength:
		v.long = append(v.long, form)
	case n >= minAnywhereLength:
		v.middle[form] = true
	case strings.ContainsFunc(form, isWordRune):
		v.short[form] = true
	}
}

func encodings(value string) []string {
	if len(value) < minAnywhereLength {
		return []string{value, strings.TrimSpace(value)}
	}
	quoted := trimQuotes(strconv.Quote(value))
	inJSON, _ := json.Marshal(value) // a string always has a form
	out := []string{
		value, strings.TrimSpace(value), quoted, trimQuotes(strconv.Quote(quoted)), trimQuotes(strconv.QuoteToASCII(value)), trimQuotes(string(inJSON)),
		strings.ToValidUTF8(value, ""), strings.ToValidUTF8(value, "�"), url.QueryEscape(value), url.PathEscape(value),
		base64.RawStdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)),
	}
	parts := strings.FieldsFunc(value, func(r rune) bool { return r == '/' || unicode.IsSpace(r) })
	for _, part := range parts[:min(len(parts), maxParts)] {
		if len(part) >= MinPartLength {
			out = append(out, part)
		}
	}
	return out
}

// trimQuotes is a quoted text without its quotes.
func trimQuotes(quoted string) string { return quoted[1 : len(quoted)-1] }

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// Empty says that there is nothing to find.
func (v Values) Empty() bool { return len(v.long)+len(v.middle)+len(v.short) == 0 }

// Mask returns the text with every part of a value replaced by Value.
func (v Values) Mask(text string) string {
	if v.Empty() {
		return text
	}
	var out strings.Builder
	kept, end := 0, 0 // text[:kept] is in out; text[:end] has been found to be confidential
	for i := range len(text) {
		n := v.matchLength(text, i)
		if n == 0 || i+n <= end {
			continue
		}
		if i > end || end == 0 {
			out.WriteString(text[kept:max(i, kept)])
			out.WriteString(Value)
		}
		end = i + n
		kept = end
	}
	out.WriteString(text[kept:])
	return out.String()
}

// matchLength returns how many bytes of the text, from i on, belong to a value.
func (v Values) matchLength(text string, i int) int {
	rest := text[i:]
	next, _ := slices.BinarySearch(v.long, rest)
	most := 0
	for _, form := range v.long[max(next-1, 0):min(next+1, len(v.long))] {
		most = max(most, commonPrefix(form, rest))
	}
	if most >= MinPartLength {
		return most
	}
	for n := min(MinPartLength-1, len(rest)); n >= minAnywhereLength; n-- {
		if v.middle[rest[:n]] {
			return n
		}
	}
	for n := min(minAnywhereLength-1, len(rest)); n > 0; n-- {
		if v.short[rest[:n]] && isWholeWord(text, i, i+n) {
			return n
		}
	}
	return 0
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// isWholeWord says that neither a letter nor a digit is next to text[from:to].
func isWholeWord(text string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:from])
	after, _ := utf8.DecodeRuneInString(text[to:])
	return !isWordRune(before) && !isWordRune(after)
}
