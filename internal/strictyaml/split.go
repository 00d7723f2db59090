package strictyaml

import (
	"bytes"
	"iter"
	"strings"
)

// Chunk is the text of one document, or of a row of JSON objects.
type Chunk struct {
	Text []byte
	// Line is the number of the text's first line in the file, from 1.
	Line int
}

// Split cuts a stream into its documents at lines that are "---" or "...", as upstream
// does, so that a syntax error in one document leaves the others. Text without content
// (comments, directives, blank lines) is no document.
func Split(data []byte) iter.Seq[Chunk] {
	return func(yield func(Chunk) bool) {
		start, startLine, at, number := 0, 1, 0, 0
		add := func(end int) bool {
			text, skipped := unmarked(data[start:end])
			return !HasContent(text) || yield(Chunk{Text: text, Line: startLine + skipped})
		}
		for line := range lines(data) {
			number++
			if rest, ok := separator(line); ok {
				if !add(at) {
					return
				}
				// What follows the dashes on their line ("--- {kind: Pod}") belongs
				// to the document that they begin.
				start, startLine = at+len(line)-len(rest), number
			}
			at += len(line)
		}
		add(len(data))
	}
}

// breaks are the characters that end a line in YAML 1.1, and oldBreaks those that no
// longer do in YAML 1.2, CR aside.
const breaks = "\r\n\u0085\u2028\u2029"

var oldBreaks = []string{"\u0085", "\u2028", "\u2029"}

// lines yields the lines of a text with their line breaks: LF, CR, CR LF and the old
// ones. Without CR and old ones in the text, lines are found much faster.
func lines(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		old := bytes.IndexByte(text, '\r') >= 0
		for _, b := range oldBreaks {
			old = old || bytes.Contains(text, []byte(b))
		}
		for len(text) > 0 {
			end := bytes.IndexByte(text, '\n') + 1
			if old {
				end = lineEnd(text)
			}
			if end <= 0 {
				end = len(text)
			}
			if !yield(text[:end]) {
				return
			}
			text = text[end:]
		}
	}
}

// lineEnd is the length of the first line, with its line break; 0 if it has none.
func lineEnd(text []byte) int {
	for i := range text {
		if size := breakAt(text[i:]); size > 0 {
			return i + size
		}
	}
	return 0
}

// breakAt is the length of the line break that text begins with, 0 for none.
func breakAt(text []byte) int {
	switch text[0] {
	case '\n':
		return 1
	case '\r':
		if len(text) > 1 && text[1] == '\n' {
			return len("\r\n")
		}
		return 1
	case 0xc2, 0xe2:
		for _, b := range oldBreaks {
			if bytes.HasPrefix(text, []byte(b)) {
				return len(b)
			}
		}
	}
	return 0
}

// Lines yields the lines of a text with their numbers, from 1, and without line breaks
// and byte order marks.
func Lines(text []byte) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		number := 0
		for line := range lines(text) {
			number++
			if !yield(number, strings.TrimRight(string(bytes.TrimPrefix(line, []byte(ByteOrderMark))), breaks)) {
				return
			}
		}
	}
}

// LineBreaks counts the line breaks of a text.
func LineBreaks(text []byte) int {
	n, last := 0, []byte(nil)
	for last = range lines(text) {
		n++
	}
	if len(bytes.TrimRight(last, breaks)) == len(last) {
		return max(n-1, 0)
	}
	return n
}

// unmarked is a document without a byte order mark before its content, which is in
// the middle of a file when files are concatenated; skipped lines of comments are cut
// with it.
func unmarked(text []byte) (rest []byte, skipped int) {
	rest = text
	if !bytes.Contains(text, []byte(ByteOrderMark)) {
		return rest, 0
	}
	at, number := 0, 0
	for line := range lines(text) {
		content, marked := bytes.CutPrefix(line, []byte(ByteOrderMark))
		at += len(line)
		if marked {
			rest, skipped = text[at-len(content):], number
		}
		if HasContent(content) {
			break
		}
		number++
	}
	return rest, skipped
}

// separator says whether a line ends a document, and returns what follows the
// mark on that line.
func separator(line []byte) (rest []byte, ok bool) {
	line = bytes.TrimPrefix(line, []byte(ByteOrderMark))
	for _, mark := range []string{"---", "..."} {
		rest, found := bytes.CutPrefix(line, []byte(mark))
		if found && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t' || breakAt(rest) > 0) {
			return rest, true
		}
	}
	return nil, false
}

// HasContent says whether any line is more than blank, a comment or a directive.
func HasContent(text []byte) bool {
	for line := range lines(text) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte(ByteOrderMark)))
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return true
		}
	}
	return false
}
