package manifest

import (
	"bytes"
	"unicode/utf8"

	"podd/internal/bytesize"
)

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
	return "the manifest is " + bytesize.Mebibytes(size) + ", more than the limit of 10 MiB",
		"a Pod is a few KiB: is this the right file? Split it if it contains many pods"
}

// badUTF8Line is the line of the first byte that is not UTF-8.
func badUTF8Line(data []byte) int {
	number := 0
	for line := range bytes.Lines(data) {
		if number++; !utf8.Valid(line) {
			return number
		}
	}
	return 0
}
