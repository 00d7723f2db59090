package status

import (
	"slices"
	"sync"

	"podd/internal/pod"
)

// Watch tells one reader which pods changed since it last asked. It holds a set
// of UIDs and no history: many changes of one pod between two looks are one.
type Watch struct {
	writer *Writer
	poke   chan struct{} // capacity 1

	mu    sync.Mutex
	dirty map[pod.UID]struct{} // nil for one that only wants to be poked
}

// Watch subscribes to changes from now on. Pods that exist already are not
// announced: subscribe first, then read Pods. Close ends it.
func (w *Writer) Watch() *Watch {
	watch := &Watch{writer: w, poke: make(chan struct{}, 1), dirty: map[pod.UID]struct{}{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watchers[watch] = struct{}{}
	return watch
}

// C receives after changes; then Take says which. It is never closed.
func (w *Watch) C() <-chan struct{} { return w.poke }

// Take returns the UIDs that changed or were forgotten since the last Take,
// sorted. What they are now, Writer.Pod says: nil for a pod that is gone.
func (w *Watch) Take() []pod.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]pod.UID, 0, len(w.dirty))
	for uid := range w.dirty {
		all = append(all, uid)
	}
	clear(w.dirty)
	slices.Sort(all)
	return all
}

// Close unsubscribes. Twice is the same as once.
func (w *Watch) Close() {
	w.writer.mu.Lock()
	defer w.writer.mu.Unlock()
	delete(w.writer.watchers, w)
}

func (w *Watch) mark(uid pod.UID) {
	w.mu.Lock()
	if w.dirty != nil {
		w.dirty[uid] = struct{}{}
	}
	w.mu.Unlock()
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// Changes returns a channel that receives after changes, and a function that
// ends that; it is Watch for readers that look at everything anyway.
func (w *Writer) Changes() (<-chan struct{}, func()) {
	watch := w.Watch()
	watch.mu.Lock()
	watch.dirty = nil
	watch.mu.Unlock()
	return watch.C(), watch.Close
}
