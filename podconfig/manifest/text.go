package manifest

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// MaxBytes is the largest manifest, in bytes: upstream's kubelet's limit for
// files and URLs (pkg/kubelet/config, maxConfigLength).
const MaxBytes = 10 << 20

// maxDocument bounds one document. An apiserver takes no request above 3 MiB,
// so no Pod is larger; it also bounds the memory that a syntax tree may take.
const maxDocument = 3 << 20

// chunk is the text of one document, or of a stream of JSON objects.
type chunk struct {
	text []byte
	// line is that of the text's first line in the file, from 1.
	line int
}

// unreadable says why data is not text at all, in a sentence and a remedy;
// empty when it is.
func unreadable(data []byte) (message, hint string) {
	switch {
	case len(data) > MaxBytes:
		return TooLarge(int64(len(data)))
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}), bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		return "the file is UTF-16 text", "save it as UTF-8 (in an editor: encoding UTF-8; or: iconv -f UTF-16 -t UTF-8)"
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		return "the file is a gzip archive, not YAML or JSON", "unpack it first (gunzip)"
	case bytes.IndexByte(data, 0) >= 0:
		return "the file is binary (it holds NUL bytes), not YAML or JSON", "move it out of the manifest directory, or save it as UTF-8 text"
	case !utf8.Valid(data):
		return "the text is not UTF-8", "save it as UTF-8 (for example: iconv -f ISO-8859-1 -t UTF-8)"
	}
	return "", ""
}

// TooLarge is the sentence, and the remedy, for a manifest of that many bytes.
func TooLarge(size int64) (message, hint string) {
	return "the manifest has " + mebibytes(size) + ", more than the limit of 10 MiB",
		"a Pod is a few KiB: is this the right file? Split it when it holds many pods"
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
func split(data []byte) []chunk {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var out []chunk
	start, startLine, line := 0, 1, 0
	add := func(end int) {
		if text := data[start:end]; hasContent(text) {
			out = append(out, chunk{text: text, line: startLine})
		}
	}
	for pos := 0; pos < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		line++
		if rest, ok := separator(data[pos:end]); ok {
			add(pos)
			// What follows the dashes on their line ("--- {kind: Pod}")
			// belongs to the document that they begin.
			start, startLine = end-len(rest), line
		}
		pos = end
	}
	add(len(data))
	return out
}

// separator says whether a line ends a document, and returns what follows the
// mark on that line.
func separator(line []byte) (rest []byte, ok bool) {
	for _, mark := range []string{"---", "..."} {
		rest, found := bytes.CutPrefix(line, []byte(mark))
		if found && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0) {
			return rest, true
		}
	}
	return nil, false
}

// hasContent says whether any line is more than blank, a comment or a
// directive.
func hasContent(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff")))
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return true
		}
	}
	return false
}
