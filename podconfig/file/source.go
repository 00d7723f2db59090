package file

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podd/internal/features"
	"podd/internal/pod"
	"podd/podconfig"
	"podd/podconfig/lastgood"
	"podd/podconfig/manifest"
)

const (
	// DefaultCheckFrequency is the kubelet's fileCheckFrequency.
	DefaultCheckFrequency = 20 * time.Second
	// createDelay is how long a created file may stay open before podd reads it without waiting
	// for the close.
	createDelay = 200 * time.Millisecond
	// writeDelay is how long after its last write podd reads a file that stays open.
	writeDelay = 20 * time.Second
	// goneDelay is how long a file may be missing while an editor replaces it, unless
	// Config.DeleteImmediately.
	goneDelay = 50 * time.Millisecond
	// dirGoneDelay is the same for the directory.
	dirGoneDelay = 2 * time.Second
	// racy is the age below which a file may change again without a change of its times: the
	// kernel's file times are coarse.
	racy = 100 * time.Millisecond
	// rapidReadDelay is how long podd waits before it reads a file again that is replaced again
	// and again, more than maxRapidReads times in a row. A new version takes some milliseconds to
	// reach the volumes of its readers. Two reads less than rapidReadGap apart count as in a row,
	// so that a slow machine waits, too.
	rapidReadDelay = 20 * time.Millisecond
	rapidReadGap   = 100 * time.Millisecond
	maxRapidReads  = 5
	// saveDelay is the same for writing last good versions.
	saveDelay = time.Second
)

// Config configures a Source.
type Config struct {
	// Path is a directory of manifests, or one manifest of any name.
	Path     string
	NodeName string
	// Validation applies to unknown and duplicate fields; "" is strict.
	Validation manifest.Validation
	// Features are the feature gates. They decide which alpha fields podd honours.
	Features features.Set
	// CheckFrequency is the time between rescans; 0 for the default.
	CheckFrequency time.Duration
	// StateDir stores the last good version of each manifest across restarts; "" for none. Only
	// podd uses it. It is created when needed. Versions with Secrets are in VolatileDir, which
	// must be in memory.
	StateDir, VolatileDir string
	// DeleteImmediately ends the pods of a manifest at each deletion, even if the file is written
	// again at once, as the kubelet does. Without it, an editor that saves by deleting first
	// ends no pod.
	DeleteImmediately bool
	// Mirrored says that podd creates a mirror pod of each pod in an apiserver.
	Mirrored bool
	Log      *slog.Logger
}

// Source reads manifests from files. It implements podconfig.Source. Run may be called again
// after it has returned, by one goroutine at a time.
type Source struct {
	cfg      Config
	log      *slog.Logger
	lastGood *lastgood.Store // by path
	saved    time.Time       // the last time lastGood was flushed
	// staleVersionsRemoved is set once the versions of manifests that were removed while podd did
	// not run are removed, too.
	staleVersionsRemoved bool

	entries map[string]*entry // by file name
	// pending holds delayed checks, by file name.
	pending map[string]delayedCheck
	// ignored holds names that were already logged as not being manifests.
	ignored map[string]bool
	// The state of the path itself. single says that it was a file, not a directory, when it
	// last existed.
	single       bool
	ready        bool
	pathProblem  *pod.Problem
	missingSince time.Time
	changed      bool
}

// delayedCheck is a check of one name at a later time.
type delayedCheck struct {
	at time.Time
	// tentative says that nothing changes if the file is broken or lacks pods that it had: it may
	// not be completely written.
	tentative bool
}

// entry is one file of the directory.
type entry struct {
	stamp stamp
	// mayBeRacy says that a later change may have the same stamp.
	mayBeRacy bool
	sum       [sha256.Size]byte
	// readAt is when the file was read. rapidReads is how many earlier reads were less than
	// rapidReadGap apart.
	readAt     time.Time
	rapidReads int
	manifest.Content
	// problems belong to the newest content.
	problems []pod.Problem
	// rejectedSize is the size of the newest content if the source has no room for it; else zero.
	rejectedSize contentSize
	// size is the size of Content.
	size contentSize
}

// New returns a Source. It reads nothing before Run.
func New(cfg Config) *Source {
	if cfg.CheckFrequency <= 0 {
		cfg.CheckFrequency = DefaultCheckFrequency
	}
	cfg.Path = filepath.Clean(cfg.Path)
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("source", pod.SourceFile, "path", cfg.Path)
	return &Source{cfg: cfg, log: log, lastGood: lastgood.New(cfg.StateDir, cfg.VolatileDir),
		entries: map[string]*entry{}, pending: map[string]delayedCheck{}, ignored: map[string]bool{}}
}

// Name returns pod.SourceFile.
func (s *Source) Name() pod.Source { return pod.SourceFile }

// Run watches until ctx is done. If inotify is not available (no instances left), it
// logs that and relies on rescans.
func (s *Source) Run(ctx context.Context, out chan<- podconfig.Snapshot) error {
	w, events, failed := s.watch()
	if w != nil {
		defer func() {
			_ = w.close()
			for range events { // wait for the reader to end
			}
		}()
	}
	return s.loop(ctx, out, w, events, failed)
}

// loop handles events, delayed checks and rescans. w and the channels are nil without inotify.
func (s *Source) loop(ctx context.Context, out chan<- podconfig.Snapshot, w *watcher, events <-chan []event, failed <-chan error) error {
	ticker := time.NewTicker(s.cfg.CheckFrequency)
	defer ticker.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	s.changed = true
	s.rescan(w)
	for {
		if err := s.send(ctx, out); err != nil {
			return err
		}
		timer.Reset(s.untilDue())
		select {
		case <-ctx.Done():
			s.save()
			return ctx.Err()
		case batch, ok := <-events:
			if !ok {
				return errors.New("inotify ended")
			}
			if err := s.handleBatch(ctx, out, w, batch); err != nil {
				return err
			}
		case err := <-failed:
			return err
		case <-timer.C:
			// A noticed write comes first, whichever of the two was ready first. Otherwise a
			// busy machine would read a file while it is being written.
			select {
			case batch := <-events:
				if err := s.handleBatch(ctx, out, w, batch); err != nil {
					return err
				}
			default:
				s.runDueChecks(w)
			}
		case <-ticker.C:
			s.rescan(w)
		}
	}
}

// handleBatch processes a batch of events and sends the resulting changes.
func (s *Source) handleBatch(ctx context.Context, out chan<- podconfig.Snapshot, w *watcher, batch []event) error {
	for len(batch) > 0 {
		var first []event
		first, batch = s.splitAtDeletion(batch)
		s.applyEvents(w, first)
		if err := s.send(ctx, out); err != nil {
			return err
		}
	}
	return nil
}

// watch starts the watcher and the goroutine that reads it.
func (s *Source) watch() (*watcher, <-chan []event, <-chan error) {
	w, err := newWatcher()
	if err != nil {
		s.log.Warn("inotify is not available: changes are found only at the next rescan", "every", s.cfg.CheckFrequency, "error", err)
		return nil, nil, nil
	}
	events, failed := make(chan []event), make(chan error, 1)
	go func() {
		defer close(events)
		buf := make([]byte, 64<<10)
		for {
			batch, err := w.read(buf)
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err != nil {
				failed <- err
				return
			}
			events <- batch
		}
	}()
	return w, events, failed
}

// rescanName is the pending name of a rescan.
const rescanName = "."

func (s *Source) runDueChecks(w *watcher) {
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(s.pending)) {
		l := s.pending[name]
		if now.Before(l.at) {
			continue
		}
		delete(s.pending, name)
		if name == rescanName {
			s.rescan(w)
			return
		}
		s.check(name, true, l.tentative)
	}
}

// splitAtDeletion returns the events up to the first that ends pods whatever comes after it. These
// must be sent before the rest.
func (s *Source) splitAtDeletion(batch []event) (first, rest []event) {
	for i, e := range batch {
		if s.endsPods(e) {
			return batch[:i+1], batch[i+1:]
		}
	}
	return batch, nil
}

// endsPods reports whether an event is a deletion that counts at once. A rename does not: a
// file that is renamed to another manifest keeps its pods.
func (s *Source) endsPods(e event) bool {
	return s.cfg.DeleteImmediately && e.mask&unix.IN_DELETE != 0 && s.isManifest(e.name)
}

// applyEvents handles a batch of inotify events.
func (s *Source) applyEvents(w *watcher, batch []event) {
	renamed := map[uint32]bool{} // cookies of renames from one manifest to another
	for _, e := range batch {
		if e.mask&unix.IN_MOVED_TO != 0 && s.isManifest(e.name) {
			renamed[e.cookie] = true
		}
	}
	again := false
	for _, e := range batch {
		switch {
		case e.mask&unix.IN_Q_OVERFLOW != 0:
			again = true
		case e.mask&unix.IN_IGNORED != 0:
		case e.wd == w.parent:
			again = again || e.name == w.parentName || e.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0
		case e.wd != w.dir:
		case e.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0, strings.HasPrefix(e.name, ".."):
			again = true // another directory, or a ConfigMap mount's ..data
		case s.isManifest(e.name):
			s.applyEvent(e, renamed[e.cookie])
			// The one file is back, or a directory has taken its place.
			again = again || s.single && (s.pathProblem != nil || isDir(s.cfg.Path))
		}
	}
	if again {
		s.rescan(w)
	}
}

// isManifest reports whether an entry of the directory is a manifest.
func (s *Source) isManifest(name string) bool {
	if s.single {
		return name == filepath.Base(s.cfg.Path)
	}
	return IsManifest(name)
}

func (s *Source) applyEvent(e event, renamed bool) {
	switch {
	case e.mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0:
		if had := s.entries[e.name]; had != nil && had.rapidReads >= maxRapidReads && time.Since(had.readAt) < rapidReadDelay {
			s.pending[e.name] = delayedCheck{at: had.readAt.Add(rapidReadDelay)}
			return
		}
		delete(s.pending, e.name)
		s.check(e.name, true, false)
	case e.mask&unix.IN_CREATE != 0:
		if s.openForWriting(e.name) {
			s.pending[e.name] = delayedCheck{at: time.Now().Add(createDelay), tentative: true}
			return
		}
		delete(s.pending, e.name)
		s.check(e.name, true, false)
	case e.mask&unix.IN_MODIFY != 0:
		// Rescans skip the file until its writer closes it or pauses. A file that was just
		// created is not delayed any further.
		if l, waiting := s.pending[e.name]; !waiting || !l.tentative {
			s.pending[e.name] = delayedCheck{at: time.Now().Add(writeDelay)}
		}
	case e.mask&unix.IN_MOVED_FROM != 0 && renamed:
		s.check(e.name, true, false)
	case s.endsPods(e):
		s.remove(e.name) // a new file of that name has an event of its own
	case e.mask&(unix.IN_MOVED_FROM|unix.IN_DELETE) != 0:
		s.pending[e.name] = delayedCheck{at: time.Now().Add(goneDelay), tentative: true}
	case e.mask&unix.IN_ATTRIB != 0:
		if _, waiting := s.pending[e.name]; !waiting {
			s.check(e.name, false, false)
		}
	}
}

// openForWriting guesses whether a newly created file is still being written: true for a
// regular file with one link, false for one that was linked into place.
func (s *Source) openForWriting(name string) bool {
	var st unix.Stat_t
	if err := unix.Lstat(s.path(name), &st); err != nil {
		return false
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 1
}

func (s *Source) path(name string) string {
	if s.single {
		return s.cfg.Path
	}
	return filepath.Join(s.cfg.Path, name)
}
