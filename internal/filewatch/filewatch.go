package filewatch

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settleTime is how long events are collected: a file and its key are replaced one after
	// the other.
	settleTime = 100 * time.Millisecond
	// rewatch is the delay before podd tries again to watch a directory that does not
	// exist.
	rewatch = 5 * time.Second
)

// Watch calls changed once it watches the directories of files, and of the targets of
// links, and then after something has happened in them. The files need not exist. Use it
// for quiet directories: changed is called for their other files, too. files is called
// again after each call of changed. Calls never overlap. Watch blocks until ctx ends; its
// error says that this machine offers no notifications.
func Watch(ctx context.Context, files func() []string, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // its descriptor is released in any case
	for {
		added, again := watchDirs(w, files())
		if added { // they may have changed before
			changed()
			continue
		}
		if done, err := awaitQuiet(ctx, w, again); done || err != nil {
			return err
		}
		changed()
	}
}

// watchDirs watches the directories of files, and only these; added says that one is new. The
// channel fires when a directory that cannot be watched should be tried again; it is nil if
// there is none.
func watchDirs(w *fsnotify.Watcher, files []string) (added bool, again <-chan time.Time) {
	dirs := map[string]bool{}
	for _, f := range files {
		dirs[filepath.Dir(f)] = true
		if target, err := filepath.EvalSymlinks(f); err == nil {
			dirs[filepath.Dir(target)] = true
		}
	}
	for _, old := range w.WatchList() {
		if !dirs[old] {
			_ = w.Remove(old) // it is gone, or will be
		}
	}
	for dir := range dirs {
		if slices.Contains(w.WatchList(), dir) {
			continue
		}
		if err := w.Add(dir); err != nil {
			again = time.After(rewatch)
		} else {
			added = true
		}
	}
	return added, again
}

// awaitQuiet returns once something has happened and then nothing more for settleTime, or
// for at most ten times that. done says that ctx has ended.
func awaitQuiet(ctx context.Context, w *fsnotify.Watcher, again <-chan time.Time) (done bool, err error) {
	var quiet, latest <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case <-again:
			return false, nil
		case <-quiet:
			return false, nil
		case <-latest:
			return false, nil
		case <-w.Errors: // events were lost
		case event := <-w.Events:
			if event.Op == fsnotify.Chmod {
				continue
			}
		}
		quiet = time.After(settleTime)
		if latest == nil {
			latest = time.After(10 * settleTime)
		}
	}
}
