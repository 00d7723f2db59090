package filewatch

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// WriteWatcher tells which of many directories had a file written. It has one inotify instance,
// and runs nothing in between: the kernel keeps the events until somebody looks. Use it for
// values that are needed often and seldom change. Create it with NewWriteWatcher; its
// methods and those of its marks are safe for concurrent use and do not block.
type WriteWatcher struct {
	fd int // Go's poller does not know it

	mu       sync.Mutex
	maxMarks int             // directories; guarded by mu
	marks    map[int32]*Mark // by watch descriptor; guarded by mu
	buf      []byte          // guarded by mu
}

// Mark is the watch of one directory.
type Mark struct {
	writes  *WriteWatcher
	wd      int32
	written atomic.Bool
}

// NewWriteWatcher returns a WriteWatcher for at most that many directories.
func NewWriteWatcher(most int) (*WriteWatcher, error) {
	fd, err := openInotify()
	if err != nil {
		return nil, err
	}
	return &WriteWatcher{fd: fd, maxMarks: most, marks: map[int32]*Mark{}, buf: make([]byte, 16<<10)}, nil
}

// Add watches a directory. It returns nil if it cannot: the limit is reached, the directory
// has a mark already, or it is not a directory.
func (w *WriteWatcher) Add(dir string) *Mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.marks) >= w.maxMarks {
		return nil
	}
	added, err := unix.InotifyAddWatch(w.fd, dir, unix.IN_MODIFY|unix.IN_ONLYDIR)
	if errors.Is(err, unix.ENOSPC) {
		w.maxMarks = len(w.marks) // the user has no more
	}
	wd := int32(added)
	if err != nil || w.marks[wd] != nil {
		return nil
	}
	m := &Mark{writes: w, wd: wd}
	w.marks[m.wd] = m
	return m
}

// maxReads bounds one Poll, so that a process that writes all the time cannot hold it for
// ever. It is more than the kernel keeps by default (fs.inotify.max_queued_events is
// 16384).
const maxReads = 256

// Poll takes the pending events from the kernel, for Written.
func (w *WriteWatcher) Poll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range maxReads {
		n, err := unix.Read(w.fd, w.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil || n <= 0: // whatever it is, nothing is known any more
			w.markAllWritten()
			return
		}
		w.events(w.buf[:n])
	}
	w.markAllWritten()
}

// events marks the directories that a buffer from the kernel names. It is called with mu
// held.
func (w *WriteWatcher) events(text []byte) {
	for e := range decode(text) {
		switch {
		case e.Mask&unix.IN_Q_OVERFLOW != 0:
			w.markAllWritten()
		case e.Mask&unix.IN_MODIFY != 0 && w.marks[e.Watch] != nil:
			w.marks[e.Watch].written.Store(true)
		}
	}
}

// markAllWritten is called with mu held.
func (w *WriteWatcher) markAllWritten() {
	for _, m := range w.marks {
		m.written.Store(true)
	}
}

// Close ends all watches. No method may be called after it.
func (w *WriteWatcher) Close() error { return unix.Close(w.fd) }

// Written reports whether a file of the directory was written between the last call, or Add,
// and the last Poll.
func (m *Mark) Written() bool { return m.written.Swap(false) }

// Remove ends the watch. It may be called once.
func (m *Mark) Remove() {
	m.writes.mu.Lock()
	defer m.writes.mu.Unlock()
	delete(m.writes.marks, m.wd)
	_, _ = unix.InotifyRmWatch(m.writes.fd, uint32(m.wd)) // it may be gone with its directory
}
