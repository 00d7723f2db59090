package strictyaml

import (
	"bytes"
	"iter"
	"strings"
	"unicode/utf8"
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

// breaks are the characters that end a line in YAML 1.1; LF alone is much faster to find.
const (
	oldBreaks = "\r\u0085\u2028\u2029"
	breaks    = "\n" + oldBreaks
)

// lines yields the lines of a text with their line breaks, of which CR LF is one.
func lines(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		old := bytes.ContainsAny(text, oldBreaks)
		for len(text) > 0 {
			var end int
			if old {
				end = bytes.IndexAny(text, breaks)
			} else {
				end = bytes.IndexByte(text, '\n')
			}
			switch {
			case end < 0:
				end = len(text)
			case bytes.HasPrefix(text[end:], []byte("\r\n")):
				end += len("\r\n")
			default:
				_, size := utf8.DecodeRune(text[end:])
				end += size
			}
			if !yield(text[:end]) {
				return
			}
			text = text[end:]
		}
	}
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
	at, number := 0, 0
	if rest = text; !bytes.Contains(text, []byte(ByteOrderMark)) {
		return rest, 0
	}
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
		if r, _ := utf8.DecodeRune(rest); found && (len(rest) == 0 || strings.ContainsRune(" \t"+breaks, r)) {
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
