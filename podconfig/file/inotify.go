package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The events of a directory of manifests. fsnotify does not offer close-write,
// and without it a reader either sees half-written files or has to wait a
// guessed time for each; hence inotify itself.
const (
	dirEvents = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM |
		unix.IN_DELETE | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	// parentEvents are those of the directory above: the watched one appears,
	// goes, or is another one now.
	parentEvents = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// event is one thing that inotify says.
type event struct {
	wd   int32
	mask uint32
	// cookie ties the two ends of a rename.
	cookie uint32
	name   string
}

// watcher is one inotify instance with at most two watches.
type watcher struct {
	f  *os.File
	fd int // of f; the instance belongs to the source's goroutine
	// dir and parent are watch descriptors, -1 for none; parentName is the
	// entry of the parent that matters.
	dir, parent int32
	parentName  string
	// target is the watched directory, to notice that the path is another now.
	target stamp
}

func newWatcher() (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an inotify instance (is fs.inotify.max_user_instances used up?): %w", err)
	}
	// Non-blocking, so that the Go poller waits and Close ends a read.
	return &watcher{fd: fd, f: os.NewFile(uintptr(fd), "inotify"), dir: -1, parent: -1}, nil
}

func (w *watcher) close() error { return w.f.Close() }

// aim watches the directory dir (if it is there) and the nearest existing
// directory above it. It may be called again at any time.
func (w *watcher) aim(dir string) error {
	for {
		child, err := w.aimOnce(dir)
		if w.dir >= 0 || err != nil || !isDir(child) {
			return err
		}
		// The directory that was missing below the watched one was made before
		// the watch was there: nothing will ever tell of it.
	}
}

// aimOnce sets the two watches and returns the entry of the parent that the
// parent's watch is for.
func (w *watcher) aimOnce(dir string) (child string, err error) {
	w.forget(&w.dir)
	w.forget(&w.parent)
	w.target = stamp{}
	if wd, addErr := unix.InotifyAddWatch(w.fd, dir, dirEvents|unix.IN_ONLYDIR); addErr == nil {
		w.dir = int32(wd)
		w.target, _ = stat(dir)
	} else if !missing(addErr) {
		err = fmt.Errorf("watch %s: %w", dir, addErr)
	}
	for child = filepath.Clean(dir); ; {
		above := filepath.Dir(child)
		if above == child {
			return child, err // the root itself
		}
		wd, addErr := unix.InotifyAddWatch(w.fd, above, parentEvents|unix.IN_ONLYDIR)
		if addErr == nil {
			w.parent, w.parentName = int32(wd), filepath.Base(child)
			return child, err
		}
		if !missing(addErr) {
			return child, errors.Join(err, fmt.Errorf("watch %s: %w", above, addErr))
		}
		child = above
	}
}

// missing says that there is no directory of the name.
func missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

func (w *watcher) forget(wd *int32) {
	if *wd >= 0 {
		_, _ = unix.InotifyRmWatch(w.fd, uint32(*wd)) // it may be gone with its directory
		*wd = -1
	}
}

// read blocks for the next events.
func (w *watcher) read(buf []byte) ([]event, error) {
	n, err := w.f.Read(buf)
	if err != nil {
		return nil, err
	}
	var out []event
	for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
		raw := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
		end := unix.SizeofInotifyEvent + int(raw.Len)
		if end > len(b) {
			return out, fmt.Errorf("inotify sent %d bytes of an event of %d: %w", len(b), end, io.ErrUnexpectedEOF)
		}
		name := b[unix.SizeofInotifyEvent:end]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		out = append(out, event{wd: raw.Wd, mask: raw.Mask, cookie: raw.Cookie, name: string(name)})
		b = b[end:]
	}
	return out, nil
}
