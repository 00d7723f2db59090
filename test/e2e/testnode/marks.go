package testnode

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Marks sees files appear in a directory, which containers have as /out, and
// notes when: the arrival of a container at its first instruction, told by the
// kernel and by nobody's log.
type Marks struct {
	*arrivals
	Dir string

	watcher *fsnotify.Watcher
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
	m := &Marks{Dir: dir, watcher: watcher, arrivals: newArrivals("marks")}
	go m.read()
	return m, nil
}

func (m *Marks) read() {
	for event := range m.watcher.Events {
		if now := time.Now(); event.Has(fsnotify.Create) {
			m.note(filepath.Base(event.Name), now)
		}
	}
}

// Close ends the watch.
func (m *Marks) Close() error { return m.watcher.Close() }
