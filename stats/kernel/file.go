package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrGone is what reading a cgroup or a process that has ended returns.
var ErrGone = errors.New("gone")

// errMissing is a file that this kernel, or this cgroup, does not have.
var errMissing = errors.New("no such file")

// maxFile bounds what is read of a file: the longest, cgroup.procs of a cgroup with all of
// the machine's processes, is cut there.
const maxFile = 1 << 20

// file reads small files of the kernel into a buffer that it keeps.
type file struct {
	buf  []byte
	path []byte
	// pids and names are of Reader.open.
	pids  []int
	names []string
}

var files = sync.Pool{New: func() any { return &file{buf: make([]byte, 8<<10), path: make([]byte, 0, 256)} }}

// read returns the content of dir/name until the next call. os.ReadFile would register
// each file with the poller and allocate.
func (f *file) read(dir, name string) ([]byte, error) { return f.get(dir, name, false) }

// get is read. With whole, the file is one that the kernel writes in one piece: what fits
// into the buffer is all of it, and its end need not be read.
func (f *file) get(dir, name string, whole bool) ([]byte, error) {
	f.path = append(append(append(f.path[:0], dir...), '/'), name...)
	fd, err := unix.Open(string(f.path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, errMissing
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ESRCH):
		return nil, ErrGone
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", f.path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	n := 0
	for {
		if n == len(f.buf) {
			if n >= maxFile {
				return f.buf[:n], nil
			}
			f.buf = append(f.buf, make([]byte, len(f.buf))...)
		}
		got, err := unix.Read(fd, f.buf[n:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ESRCH):
			return nil, ErrGone
		case errors.Is(err, unix.EOPNOTSUPP): // pressure files of a kernel that has it disabled
			return nil, errMissing
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", f.path, err)
		case got == 0:
			return f.buf[:n], nil
		}
		if n += got; whole && n < len(f.buf) {
			return f.buf[:n], nil
		}
	}
}

// parseNumber returns 0 for what is none, and for negative ones, which the kernel uses for
// "no quota".
func parseNumber(text []byte) uint64 {
	text = bytes.TrimSpace(text)
	if string(text) == "max" {
		return math.MaxUint64
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return n
}

// pairs calls found for each line "name number".
func pairs(text []byte, found func(name []byte, n uint64)) {
	for line := range bytes.Lines(text) {
		if name, value, ok := bytes.Cut(line, []byte{' '}); ok {
			found(name, parseNumber(value))
		}
	}
}

// reads collects the first error of several reads, and whether a file was missing.
type reads struct {
	*file
	dir    string
	err    error
	missed bool
}

// number is that in a file; 0 if it is missing.
func (r *reads) number(name string) uint64 {
	return parseNumber(r.note(r.get(r.dir, name, true)))
}

// numbers calls found for each line "name number" of a file that the kernel writes in one
// piece, and reports whether it is there.
func (r *reads) numbers(name string, found func(name []byte, n uint64)) bool {
	text := r.note(r.get(r.dir, name, true))
	pairs(text, found)
	return text != nil
}

// text is nil if the file is missing.
func (r *reads) text(name string) []byte { return r.note(r.read(r.dir, name)) }

func (r *reads) note(text []byte, err error) []byte {
	switch {
	case errors.Is(err, errMissing):
		r.missed = true
	case err != nil && r.err == nil:
		r.err = err
	}
	return text
}
