package podlogs

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// tailOffset returns where the last lines of a file begin, and where it ends. A negative
// number asks for the whole file. An unfinished line at the end counts as one.
func tailOffset(f *os.File, lines int64) (start, end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	end = info.Size()
	switch {
	case lines < 0:
		return 0, end, nil
	case lines == 0:
		return end, end, nil
	}
	buf := make([]byte, 64<<10)
	for at := end; at > 0; {
		n := min(int64(len(buf)), at)
		at -= n
		if _, err := f.ReadAt(buf[:n], at); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		for i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0; i = bytes.LastIndexByte(buf[:i], '\n') {
			if at+int64(i) == end-1 {
				continue // the end of the last line
			}
			if lines--; lines == 0 {
				return at + int64(i) + 1, end, nil
			}
		}
	}
	return 0, end, nil
}

// wholeLinesOffset returns where the last lines that a container wrote begin, each with all
// of its parts, and where the file ends. Lines of two streams may be mixed: before starts,
// by stream, the file has only parts of earlier lines, which are left out.
func wholeLinesOffset(f *os.File, lines int64) (starts map[string]int64, start, end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, 0, err
	}
	end = info.Size()
	starts = map[string]int64{stdout: end, stderr: end}
	// A stream's lines are found from their ends. One is complete where the line before it
	// ends; within says that its beginning is not found yet.
	within, done := map[string]bool{}, map[string]bool{}
	for at, upTo := end, end; at > 0 && (lines > 0 || within[stdout] || within[stderr]); upTo = at {
		if at, err = lineBefore(f, upTo); err != nil {
			return nil, 0, 0, err
		}
		l, ok := headAt(f, at, upTo)
		if !ok || done[l.stream] {
			continue
		}
		if ends := !l.partial || starts[l.stream] == end; ends {
			within[l.stream] = false
			if lines == 0 {
				done[l.stream] = true
				continue
			}
			lines--
		}
		starts[l.stream], within[l.stream] = at, true
	}
	return starts, min(starts[stdout], starts[stderr]), end, nil
}

// lineBefore returns where the line begins that ends at upTo.
func lineBefore(f *os.File, upTo int64) (int64, error) {
	buf := make([]byte, 4<<10)
	for at := upTo - 1; at > 0; { // without its own newline
		n := min(int64(len(buf)), at)
		if _, err := f.ReadAt(buf[:n], at-n); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return at - n + int64(i) + 1, nil
		}
		at -= n
	}
	return 0, nil
}

// headAt parses what is before the text of the line from at to upTo; false if it is not in
// CRI's format.
func headAt(f *os.File, at, upTo int64) (line, bool) {
	head := make([]byte, min(upTo-at, 128)) // time, stream and tags are shorter
	n, err := f.ReadAt(head, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return line{}, false
	}
	l, err := parseLine(head[:n])
	return l, err == nil
}
