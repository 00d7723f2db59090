package filewatch

import (
	"encoding/binary"
	"fmt"
	"iter"
	"os"

	"golang.org/x/sys/unix"
)

// Inotify is one inotify instance, for callers that need an event that fsnotify does not
// offer: a writer has closed a file (IN_CLOSE_WRITE). Without that, a reader sees
// half-written files, or has to wait for a guessed time. Calls of Add and Remove must not
// be concurrent.
type Inotify struct {
	// File is what Read reads. A deadline, or Close, ends a Read.
	File *os.File
	fd   int
}

// Event is one event of an instance. It is valid until the buffer is used again.
type Event struct {
	// Watch is what Add returned.
	Watch int32
	// Mask has bits of unix.IN_*.
	Mask uint32
	// Cookie ties the two ends of a rename.
	Cookie uint32
	name   []byte
}

// Name is the name within the watched directory; empty for an event of the directory itself.
func (e Event) Name() string { return unix.ByteSliceToString(e.name) }

// NewInotify makes an instance. A user may have only a few of them.
func NewInotify() (*Inotify, error) {
	fd, err := openInotify()
	if err != nil {
		return nil, err
	}
	return &Inotify{File: os.NewFile(uintptr(fd), "inotify"), fd: fd}, nil
}

// openInotify returns a descriptor that does not block. As an os.File, Go's poller waits for
// it, which wakes the process at each event.
func openInotify() (fd int, err error) {
	fd, err = unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make an inotify instance (is fs.inotify.max_user_instances used up?): %w", err)
	}
	return fd, nil
}

// Add watches a path for the events of a mask.
func (i *Inotify) Add(path string, mask uint32) (watch int32, err error) {
	wd, err := unix.InotifyAddWatch(i.fd, path, mask)
	return int32(wd), err
}

// Remove ends a watch.
func (i *Inotify) Remove(watch int32) {
	_, _ = unix.InotifyRmWatch(i.fd, uint32(watch)) // it may be gone with its directory
}

// Read blocks for the next events, which are in buf.
func (i *Inotify) Read(buf []byte) ([]Event, error) {
	n, err := i.File.Read(buf)
	if err != nil {
		return nil, err
	}
	var all []Event
	for e := range decode(buf[:n]) {
		all = append(all, e)
	}
	return all, nil
}

// decode yields the events in a buffer from the kernel.
func decode(text []byte) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for len(text) >= unix.SizeofInotifyEvent {
			number := func(at int) uint32 { return binary.NativeEndian.Uint32(text[at:]) }
			end := min(unix.SizeofInotifyEvent+int(number(12)), len(text))
			if !yield(Event{Watch: int32(number(0)), Mask: number(4), Cookie: number(8), name: text[unix.SizeofInotifyEvent:end]}) {
				return
			}
			text = text[end:]
		}
	}
}
