package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"podd/internal/wake"
)

// rewatchDelay is the delay before watching the directory is retried.
const rewatchDelay = time.Second

// Run registers the plugins of sockets that appear in the directory, and deregisters those of
// sockets that are removed. It blocks until ctx ends, deregisters all, and returns ctx's cause.
func (r *Registry) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	for ctx.Err() == nil {
		if err := r.watch(ctx, &work); err != nil && ctx.Err() == nil {
			r.log.Warn("cannot watch for plugins: trying again", "dir", r.dir, "error", err)
		}
		r.removeAllSockets()
		wake.Sleep(ctx, rewatchDelay)
	}
	return context.Cause(ctx)
}

// watch returns when the directory is removed or notifications were lost.
func (r *Registry) watch(ctx context.Context, work *sync.WaitGroup) error {
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		return err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	found := func(path string) { r.handlePath(ctx, w, work, path) }
	if err := w.Add(r.dir); err != nil {
		return err
	}
	if err := forEachEntry(r.dir, found); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			return err
		case event, ok := <-w.Events:
			switch {
			case !ok:
				return errors.New("the watch has ended")
			case event.Has(fsnotify.Create):
				found(event.Name)
			case event.Has(fsnotify.Remove), event.Has(fsnotify.Rename):
				if event.Name == r.dir {
					return fmt.Errorf("%s was removed", r.dir)
				}
				r.removeSocket(event.Name)
			}
		}
	}
}

func forEachEntry(dir string, found func(path string)) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		found(filepath.Join(dir, e.Name()))
	}
	return nil
}

// handlePath starts to register a socket, and watches a directory. As upstream, it ignores
// names that begin with a dot: those are still being created.
func (r *Registry) handlePath(ctx context.Context, w *fsnotify.Watcher, work *sync.WaitGroup, path string) {
	if strings.HasPrefix(filepath.Base(path), ".") {
		return
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil: // removed again, which another event reports
	case info.IsDir():
		err = w.Add(path)
		if err == nil {
			err = forEachEntry(path, func(path string) { r.handlePath(ctx, w, work, path) })
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.log.Warn("cannot look for plugins", "dir", path, "error", err)
		}
	case info.Mode().Type() == fs.ModeSocket:
		r.startRegistration(ctx, work, path, info)
	}
}

// startRegistration starts to register a socket, unless it is already known: a file may be both
// listed and notified.
func (r *Registry) startRegistration(ctx context.Context, work *sync.WaitGroup, path string, file fs.FileInfo) {
	r.mu.Lock()
	old := r.sockets[path]
	r.mu.Unlock()
	if old != nil && os.SameFile(old.file, file) && old.file.ModTime().Equal(file.ModTime()) {
		return
	}
	r.removeSocket(path)
	ctx, cancel := context.WithCancel(ctx)
	s := &socket{file: file, cancel: cancel}
	r.mu.Lock()
	r.sockets[path] = s
	r.mu.Unlock()
	work.Go(func() { r.register(ctx, path, s) })
}

// removeSocket ends the registration of a socket and deregisters its plugin.
func (r *Registry) removeSocket(path string) {
	r.mu.Lock()
	s := r.sockets[path]
	delete(r.sockets, path)
	r.mu.Unlock()
	if s != nil {
		s.cancel()
		r.deregister(s)
	}
}

// removeAllSockets removes all sockets; the next watch finds those that exist.
func (r *Registry) removeAllSockets() {
	r.mu.Lock()
	var paths []string
	for path := range r.sockets {
		paths = append(paths, path)
	}
	r.mu.Unlock()
	for _, path := range paths {
		r.removeSocket(path)
	}
}
