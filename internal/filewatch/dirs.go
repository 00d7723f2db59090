package filewatch

import (
	"errors"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"

	"podd/internal/wake"
)

// Dirs reports changes of directories to any number of subscribers with one inotify
// instance, because a user may have few (fs.inotify.max_user_instances is 128). It has none
// while nobody is subscribed. The zero value is ready.
type Dirs struct {
	// watcherMu serializes the calls of the instance. dispatch never takes it, because those
	// calls may wait for dispatch.
	watcherMu sync.Mutex
	watcher   *fsnotify.Watcher // nil while nobody is subscribed; guarded by watcherMu

	mu   sync.Mutex
	subs map[string]map[*Subscription]struct{} // by directory
}

// Subscription is a subscription to the changes of one directory.
type Subscription struct {
	// Changed receives after a change of the directory or a file in it. Changes that the
	// receiver has not read yet count as one. It is closed when no more changes can be
	// seen.
	Changed <-chan struct{}

	dirs    *Dirs
	dir     string
	changed wake.Signal
	watcher *fsnotify.Watcher
	ended   bool // guarded by dirs.mu
}

// Subscribe watches a directory until the subscription is closed.
func (d *Dirs) Subscribe(dir string) (*Subscription, error) {
	d.watcherMu.Lock()
	defer d.watcherMu.Unlock()
	if d.watcher == nil {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			return nil, err
		}
		d.watcher = w
		go d.dispatch(w)
	}
	s := &Subscription{dirs: d, dir: filepath.Clean(dir), changed: wake.New(), watcher: d.watcher}
	s.Changed = s.changed
	d.mu.Lock()
	if d.subs == nil {
		d.subs = map[string]map[*Subscription]struct{}{}
	}
	if d.subs[s.dir] == nil {
		d.subs[s.dir] = map[*Subscription]struct{}{}
	}
	d.subs[s.dir][s] = struct{}{}
	d.mu.Unlock()
	// Also if others watch the path: it may be another directory by now.
	if err := d.watcher.Add(s.dir); err != nil {
		s.closeLocked()
		return nil, err
	}
	return s, nil
}

// Close ends the subscription. It may be called once.
func (s *Subscription) Close() {
	s.dirs.watcherMu.Lock()
	defer s.dirs.watcherMu.Unlock()
	s.closeLocked()
}

// closeLocked is Close with dirs.watcherMu held.
func (s *Subscription) closeLocked() {
	d := s.dirs
	d.mu.Lock()
	delete(d.subs[s.dir], s)
	lastOfDir := len(d.subs[s.dir]) == 0
	if lastOfDir {
		delete(d.subs, s.dir)
	}
	last := len(d.subs) == 0
	d.mu.Unlock()
	switch {
	case d.watcher == nil:
	case last:
		_ = d.watcher.Close() // its descriptor is released in any case
		d.watcher = nil
	case lastOfDir:
		_ = d.watcher.Remove(s.dir) // the directory may be gone, and its watch with it
	}
}

// dispatch passes an instance's events on until it is closed. An instance that fails ends
// its subscriptions; the next one gets another instance.
func (d *Dirs) dispatch(w *fsnotify.Watcher) {
	for {
		select {
		case event, ok := <-w.Events:
			if !ok {
				d.endSubscriptions(w)
				return
			}
			d.mu.Lock()
			for _, dir := range []string{event.Name, filepath.Dir(event.Name)} {
				for s := range d.subs[dir] {
					s.notifyLocked()
				}
			}
			d.mu.Unlock()
		case err, ok := <-w.Errors:
			switch {
			case !ok || !errors.Is(err, fsnotify.ErrEventOverflow):
				d.endSubscriptions(w)
				go d.closeFailed(w)
				return
			default:
				d.notifyAll()
			}
		}
	}
}

// notifyAll notifies all subscribers: events were lost.
func (d *Dirs) notifyAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, subs := range d.subs {
		for s := range subs {
			s.notifyLocked()
		}
	}
}

// endSubscriptions ends the subscriptions of an instance.
func (d *Dirs) endSubscriptions(w *fsnotify.Watcher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, subs := range d.subs {
		for s := range subs {
			if s.watcher == w && !s.ended {
				s.ended = true
				close(s.changed)
			}
		}
	}
}

// closeFailed closes an instance that has failed.
func (d *Dirs) closeFailed(w *fsnotify.Watcher) {
	d.watcherMu.Lock()
	defer d.watcherMu.Unlock()
	if d.watcher == w {
		d.watcher = nil
	}
	d.endSubscriptions(w) // those that subscribed meanwhile
	_ = w.Close()
}

func (s *Subscription) notifyLocked() {
	if s.ended {
		return
	}
	s.changed.Notify()
}
