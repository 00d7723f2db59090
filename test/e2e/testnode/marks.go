package testnode

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Marks sees files appear in a directory, which containers have as /out, and
// notes when: the arrival of a container at its first instruction, told by the
// kernel and by nobody's log.
type Marks struct {
	Dir string

	watcher *fsnotify.Watcher
	mu      sync.Mutex
	seen    map[string]time.Time
	changed chan struct{} // closed and replaced with every new mark
}

// NewMarks watches dir, which must exist, until Close.
func NewMarks(dir string) (*Marks, error) {
	watcher, err := fsnotify.NewBufferedWatcher(1024)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	if err := watcher.Add(dir); err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	m := &Marks{Dir: dir, watcher: watcher, seen: map[string]time.Time{}, changed: make(chan struct{})}
	go m.read()
	return m, nil
}

func (m *Marks) read() {
	for event := range m.watcher.Events {
		now := time.Now()
		if !event.Has(fsnotify.Create) {
			continue
		}
		m.mu.Lock()
		name := filepath.Base(event.Name)
		if _, ok := m.seen[name]; !ok {
			m.seen[name] = now
		}
		close(m.changed)
		m.changed = make(chan struct{})
		m.mu.Unlock()
	}
}

// Close ends the watch.
func (m *Marks) Close() error { return m.watcher.Close() }

// Wait blocks until all named files have appeared and returns when the last did.
func (m *Marks) Wait(ctx context.Context, names ...string) (time.Time, error) {
	for {
		m.mu.Lock()
		var last time.Time
		var missing []string
		for _, name := range names {
			at, ok := m.seen[name]
			if !ok {
				missing = append(missing, name)
			} else if at.After(last) {
				last = at
			}
		}
		changed := m.changed
		m.mu.Unlock()
		if len(missing) == 0 {
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for %d of %d marks (%s …): %w", len(missing), len(names), missing[0], context.Cause(ctx))
		}
	}
}
