package manifest

import (
	"bytes"
	"iter"
	"unicode/utf8"
)

// chunk is the text of one document, or of a stream of JSON objects.
type chunk struct {
	text []byte
	// line is the number of the text's first line in the file, from 1.
	line int
}

// unreadable says why data is not text at all, with a remedy; empty if it is.
func unreadable(data []byte) (message, hint string) {
	switch {
	case len(data) > MaxBytes:
		return TooLarge(int64(len(data)))
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}), bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		return "the file is encoded in UTF-16", "save it as UTF-8 (in an editor: encoding UTF-8; or: iconv -f UTF-16 -t UTF-8)"
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		return "the file is a gzip archive, not YAML or JSON", "unpack it first (gunzip)"
	case bytes.IndexByte(data, 0) >= 0:
		return "the file is binary (it holds NUL bytes), not YAML or JSON", "move it out of the manifest directory, or save it as UTF-8 text"
	case !utf8.Valid(data):
		return "the file is not valid UTF-8", "save it as UTF-8 (for example: iconv -f ISO-8859-1 -t UTF-8)"
	}
	return "", ""
}

// TooLarge is the message, and the remedy, for a manifest of that many bytes.
func TooLarge(size int64) (message, hint string) {
	return "the manifest is " + mebibytes(size) + ", more than the limit of 10 MiB",
		"a Pod is a few KiB: is this the right file? Split it if it contains many pods"
}

func mebibytes(n int64) string {
	const digits = 10
	tenths := (n*digits + 1<<19) >> 20
	return itoa(tenths/digits) + "." + itoa(tenths%digits) + " MiB"
}

// badUTF8Line is the line of the first byte that is not UTF-8.
func badUTF8Line(data []byte) int {
	line := 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			return line
		}
		if r == '\n' {
			line++
		}
		data = data[size:]
	}
	return 0
}

// split cuts a stream into its documents at lines that are "---" or "...", as
// upstream does, so that a syntax error in one document leaves the others. Text
// without content (comments, directives, blank lines) is no document.
func split(data []byte) iter.Seq[chunk] {
	return func(yield func(chunk) bool) { splitInto(data, yield) }
}

func splitInto(data []byte, yield func(chunk) bool) {
	start, startLine, line := 0, 1, 0
	add := func(end int) bool {
		text, skipped := unmarked(data[start:end])
		return !hasContent(text) || yield(chunk{text: text, line: startLine + skipped})
	}
	old := hasOldLineEnds(data)
	for pos := 0; pos < len(data); {
		end := pos + lineEnd(data[pos:], old)
		line++
		if rest, ok := separator(data[pos:end]); ok {
			if !add(pos) {
				return
			}
			// What follows the dashes on their line ("--- {kind: Pod}")
			// belongs to the document that they begin.
			start, startLine = end-len(rest), line
		}
		pos = end
	}
	add(len(data))
}

// hasOldLineEnds says whether there are line breaks of YAML 1.1 other than LF: CR,
// NEL, LS and PS. Without them lines are found much faster.
func hasOldLineEnds(data []byte) bool {
	if bytes.IndexByte(data, '\r') >= 0 {
		return true
	}
	for _, end := range []string{"\u0085", "\u2028", "\u2029"} {
		if bytes.Contains(data, []byte(end)) {
			return true
		}
	}
	return false
}

// lineEnd is the length of the first line, with its line break. Only with old does
// anything but LF end one.
func lineEnd(data []byte, old bool) int {
	if !old {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1
		}
		return len(data)
	}
	for i := range data {
		if size := breakAt(data[i:]); size > 0 {
			return i + size
		}
	}
	return len(data)
}

// breakAt is the length of the line break that data begins with, 0 for none.
func breakAt(data []byte) int {
	switch data[0] {
	case '\n':
		return 1
	case '\r':
		if len(data) > 1 && data[1] == '\n' {
			return len("\r\n")
		}
		return 1
	case 0xc2, 0xe2:
		for _, end := range []string{"\u0085", "\u2028", "\u2029"} {
			if bytes.HasPrefix(data, []byte(end)) {
				return len(end)
			}
		}
	}
	return 0
}

// linesOf counts the line breaks of a text.
func linesOf(text []byte) int {
	if !hasOldLineEnds(text) {
		return bytes.Count(text, []byte("\n"))
	}
	n := 0
	for i := 0; i < len(text); {
		size := breakAt(text[i:])
		if size > 0 {
			n++
		}
		i += max(size, 1)
	}
	return n
}

const byteOrderMark = "\ufeff"

// unmarked is a document without a byte order mark before its content, which is in
// the middle of a file when files are concatenated; skipped lines of comments are cut
// with it.
func unmarked(text []byte) (rest []byte, skipped int) {
	if !bytes.Contains(text, []byte(byteOrderMark)) {
		return text, 0
	}
	old, lines := hasOldLineEnds(text), 0
	for at := 0; at < len(text); lines++ {
		end := at + lineEnd(text[at:], old)
		line, marked := bytes.CutPrefix(text[at:end], []byte(byteOrderMark))
		if marked {
			rest, skipped = text[end-len(line):], lines
		}
		if hasContent(line) {
			break
		}
		at = end
	}
	if rest == nil {
		return text, 0
	}
	return rest, skipped
}

// separator says whether a line ends a document, and returns what follows the
// mark on that line.
func separator(line []byte) (rest []byte, ok bool) {
	line = bytes.TrimPrefix(line, []byte(byteOrderMark))
	for _, mark := range []string{"---", "..."} {
		rest, found := bytes.CutPrefix(line, []byte(mark))
		if !found {
			continue
		}
		if len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t' || breakAt(rest) > 0 {
			return rest, true
		}
	}
	return nil, false
}

// hasContent says whether any line is more than blank, a comment or a
// directive.
func hasContent(text []byte) bool {
	old := hasOldLineEnds(text)
	for len(text) > 0 {
		end := lineEnd(text, old)
		line := bytes.TrimSpace(bytes.TrimPrefix(text[:end], []byte(byteOrderMark)))
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return true
		}
		text = text[end:]
	}
	return false
}
