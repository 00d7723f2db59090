package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// paragraph writes s indented, and continuation lines by two more spaces. It wraps at width, or
// never if width is 0.
func paragraph(w io.Writer, indent int, s string, width int) {
	lines := []string{s}
	if room := width - indent - 2; room >= minLastColumn {
		lines = wrap(s, room)
	}
	for i, line := range lines {
		fmt.Fprintf(w, "%s%s\n", strings.Repeat(" ", indent+2*min(i, 1)), line)
	}
}

// wrap splits s at spaces into lines of at most width characters. A longer word gets a line of
// its own, so that it can be copied whole.
func wrap(s string, width int) []string {
	var lines []string
	line, room := "", 0
	for word := range strings.SplitSeq(s, " ") {
		n := utf8.RuneCountInString(word)
		if line != "" && n+1 <= room {
			line, room = line+" "+word, room-n-1
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		line, room = word, width-n
	}
	return append(lines, line)
}

// shorten cuts s to n characters.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-2]) + " …"
}

// Count returns "1 pod", or "2 pods".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// oneLine puts a message on one line.
func oneLine(s string) string {
	return printable(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' || r == '\t' }), " "))
}

// printable replaces characters that could control a terminal, start a new line, or reverse
// text. Names of files and messages of programs are not trusted.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return '?'
		}
		return r
	}, s)
}
