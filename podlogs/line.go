package podlogs

import (
	"bytes"
	"errors"
	"time"
)

// Streams, as CRI names them.
const (
	stdout = "stdout"
	stderr = "stderr"
)

// line is one line of a log file: a part of what a container wrote.
type line struct {
	at     time.Time
	stream string
	// partial: the container's line goes on in the next one of the stream.
	partial bool
	// text ends with a newline unless the line is partial.
	text []byte
}

// errSkipped is the error of a line before those to read.
var errSkipped = errors.New("is not to be read")

var errNotCRI = errors.New("is not in CRI's log format")

// parseLine reads a line with its newline. Its text is part of raw.
func parseLine(raw []byte) (line, error) {
	at, rest, ok := bytes.Cut(raw, []byte{' '})
	if !ok {
		return line{}, errNotCRI
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return line{}, errNotCRI
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return line{}, errNotCRI
	}
	var l line
	var err error
	if l.at, err = time.Parse(time.RFC3339Nano, string(at)); err != nil {
		return line{}, errNotCRI
	}
	switch l.stream = string(stream); l.stream {
	case stdout, stderr:
	default:
		return line{}, errNotCRI
	}
	first, _, _ := bytes.Cut(tags, []byte{':'})
	switch string(first) {
	case "P":
		l.partial, text = true, bytes.TrimSuffix(text, []byte{'\n'})
	case "F":
	default:
		return line{}, errNotCRI
	}
	l.text = text
	return l, nil
}
