package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podd/internal/filewatch"
)

const (
	// dirEvents are the events of a directory of manifests.
	dirEvents = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM |
		unix.IN_DELETE | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	// parentEvents are the events of the directory above: the watched one appears, goes, or is
	// replaced.
	parentEvents = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// event is a copy of one event. It outlives the buffer that it was read into.
type event struct {
	wd           int32
	mask, cookie uint32
	name         string
}

// watcher is one inotify instance with at most two watches.
type watcher struct {
	inotify *filewatch.Inotify // only the source's goroutine uses it
	// dir and parent are watch descriptors, -1 for none. parentName is the relevant entry of
	// the parent.
	dir, parent int32
	parentName  string
	// target identifies the watched directory, to notice when the path leads to another one.
	target stamp
}

func newWatcher() (*watcher, error) {
	i, err := filewatch.NewInotify()
	if err != nil {
		return nil, err
	}
	return &watcher{inotify: i, dir: -1, parent: -1}, nil
}

func (w *watcher) close() error { return w.inotify.File.Close() }

// aim watches the directory dir (if it is there) and the nearest existing
// directory above it. It may be called again at any time.
func (w *watcher) aim(dir string) error {
	for {
		child, err := w.aimOnce(dir)
		if w.dir >= 0 || err != nil || !isDir(child) {
			return err
		}
		// The directory that was missing below the watched one was made before the watch
		// existed: no event will ever report it.
	}
}

// aimOnce sets the two watches. It returns the parent's entry that the parent's watch waits
// for.
func (w *watcher) aimOnce(dir string) (child string, err error) {
	w.forget(&w.dir)
	w.forget(&w.parent)
	w.target = stamp{}
	if wd, addErr := w.inotify.Add(dir, dirEvents|unix.IN_ONLYDIR); addErr == nil {
		w.dir = wd
		w.target, _ = stat(dir)
	} else if !missing(addErr) {
		err = fmt.Errorf("watch %s: %w", dir, addErr)
	}
	for child = filepath.Clean(dir); ; {
		above := filepath.Dir(child)
		if above == child {
			return child, err // the root itself
		}
		wd, addErr := w.inotify.Add(above, parentEvents|unix.IN_ONLYDIR)
		if addErr == nil {
			w.parent, w.parentName = wd, filepath.Base(child)
			return child, err
		}
		if !missing(addErr) {
			return child, errors.Join(err, fmt.Errorf("watch %s: %w", above, addErr))
		}
		child = above
	}
}

// missing reports whether err means that there is no directory of the name.
func missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

func (w *watcher) forget(wd *int32) {
	if *wd >= 0 {
		w.inotify.Remove(*wd)
		*wd = -1
	}
}

// read blocks for the next events.
func (w *watcher) read(buf []byte) ([]event, error) {
	all, err := w.inotify.Read(buf)
	out := make([]event, len(all))
	for i, e := range all {
		out[i] = event{wd: e.Watch, mask: e.Mask, cookie: e.Cookie, name: e.Name()}
	}
	return out, err
}
