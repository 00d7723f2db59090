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
	// pids and names are of Reader.countOpenFiles.
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
	return f.getAt(unix.AT_FDCWD, string(f.path), whole)
}

// getAt is get of a file below an open directory.
func (f *file) getAt(dir int, name string, whole bool) ([]byte, error) {
	fd, err := openAt(dir, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	return f.readFD(fd, name, whole)
}

func openAt(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return -1, errMissing
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ESRCH):
		return -1, ErrGone
	case err != nil:
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	return fd, nil
}

// readFD reads an open file from its beginning, as often as it is called.
func (f *file) readFD(fd int, name string, whole bool) ([]byte, error) {
	n := 0
	for {
		if n == len(f.buf) {
			if n >= maxFile {
				return f.buf[:n], nil
			}
			f.buf = append(f.buf, make([]byte, len(f.buf))...)
		}
		got, err := unix.Pread(fd, f.buf[n:], int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ESRCH):
			return nil, ErrGone
		case errors.Is(err, unix.EOPNOTSUPP): // pressure files of a kernel that has it disabled
			return nil, errMissing
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", name, err)
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
// Whoever makes one calls close at the end.
type reads struct {
	*file
	dir    string
	err    error
	missed bool

	handles     *handles // of those that were entered
	currentDir  *openDir // the last one entered; nil if it could not be opened
	currentPath string   // its path
	openErr     error    // why it could not
}

// enter opens the directory unless it is open.
func (r *reads) enter() error {
	if r.currentPath == r.dir {
		return r.openErr
	}
	r.checkReplaced()
	r.currentPath = r.dir
	if r.handles == nil {
		r.handles = &handles{}
	}
	r.currentDir, r.openErr = r.handles.enter(r.dir)
	return r.openErr
}

// checkReplaced fails the reading if a file of the directory was missing and another
// directory has that name by now: nothing that was read counts then.
func (r *reads) checkReplaced() {
	if r.currentDir != nil && r.missed && r.err == nil && r.replaced() {
		r.err = ErrGone
	}
	r.currentPath, r.currentDir, r.openErr = "", nil, nil
}

// close closes what this reading opened and nobody else uses.
func (r *reads) close() {
	r.checkReplaced()
	if r.handles != nil && r.handles.cache == nil {
		r.handles.close()
	}
}

func (r *reads) replaced() bool {
	var was, is unix.Stat_t
	return unix.Fstat(r.currentDir.fd, &was) != nil || unix.Stat(r.currentPath, &is) == nil && (is.Ino != was.Ino || is.Dev != was.Dev)
}

// get shadows file's: the file is in the directory.
func (r *reads) get(name string, whole bool) ([]byte, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	text, err := r.handles.read(r.file, r.currentDir, name, whole)
	return text, r.wrapErr(err)
}

// wrapErr adds the directory to an error.
func (r *reads) wrapErr(err error) error {
	if err != nil && !errors.Is(err, errMissing) && !errors.Is(err, ErrGone) {
		return fmt.Errorf("%s: %w", r.dir, err)
	}
	return err
}

// number is that in a file; 0 if it is missing.
func (r *reads) number(name string) uint64 {
	return parseNumber(r.recordErr(r.get(name, true)))
}

// setting is number of a file that only changes when somebody writes it.
func (r *reads) setting(name string) uint64 { return parseNumber(r.settingText(name)) }

// settingText is the text of such a file, nil if it is missing.
func (r *reads) settingText(name string) []byte {
	if err := r.enter(); err != nil {
		return r.recordErr(nil, err)
	}
	text, err := r.handles.setting(r.file, r.currentDir, name)
	return r.recordErr(text, r.wrapErr(err))
}

// numbers calls found for each line "name number" of a file that the kernel writes in one
// piece, and reports whether it is there.
func (r *reads) numbers(name string, found func(name []byte, n uint64)) bool {
	text := r.recordErr(r.get(name, true))
	pairs(text, found)
	return text != nil
}

// text is nil if the file is missing.
func (r *reads) text(name string) []byte { return r.recordErr(r.get(name, false)) }

func (r *reads) recordErr(text []byte, err error) []byte {
	switch {
	case errors.Is(err, errMissing):
		r.missed = true
	case err != nil && r.err == nil:
		r.err = err
	}
	return text
}
