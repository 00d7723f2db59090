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

	"podd/internal/pod"
	"podd/podconfig"
	"podd/podconfig/lastgood"
	"podd/podconfig/manifest"
)

const (
	// DefaultCheckFrequency is the kubelet's fileCheckFrequency.
	DefaultCheckFrequency = 20 * time.Second
	// createDelay is how long a created file may stay open before it is read
	// without waiting for the close.
	createDelay = 200 * time.Millisecond
	// writeDelay is how long after its last write a file that stays open is read.
	writeDelay = 20 * time.Second
	// goneDelay is how long a file may be missing while an editor replaces it, unless
	// Config.GoneAtOnce.
	goneDelay = 50 * time.Millisecond
	// dirGoneDelay is the same for the directory.
	dirGoneDelay = 2 * time.Second
	// racy is the age up to which a file may change again and keep its times: the
	// kernel's file times are coarse.
	racy = 100 * time.Millisecond
	// restDelay is how long after it was read a file rests that is replaced again
	// and again, which is more often than burst times in a row. A new version costs
	// some milliseconds until it is in the volumes of its readers. Readings less than
	// rowGap apart are in a row: a slow machine rests, too.
	restDelay = 20 * time.Millisecond
	rowGap    = 100 * time.Millisecond
	burst     = 5
	// saveDelay is the same for writing last good versions.
	saveDelay = time.Second
)

// Config configures a Source.
type Config struct {
	// Path is the directory of manifests, or one manifest of any name.
	Path     string
	NodeName string
	// Validation applies to unknown and duplicate fields; "" is strict.
	Validation manifest.Validation
	// CheckFrequency is the time between rescans; 0 for the default.
	CheckFrequency time.Duration
	// StateDir keeps the last good version of each manifest over restarts;
	// "" for none. It is podd's own; it is made when needed. Those with Secrets are
	// in VolatileDir, which must be in memory.
	StateDir, VolatileDir string
	// GoneAtOnce takes each deletion of a manifest for the end of its pods, also if the
	// file is written anew at once, as the kubelet does. Otherwise an editor that saves in
	// that way ends no pod.
	GoneAtOnce bool
	Log        *slog.Logger
}

// Source reads manifests from files. It implements podconfig.Source; Run may be
// called again after it returned, by one goroutine at a time.
type Source struct {
	cfg   Config
	log   *slog.Logger
	good  *lastgood.Store // by path
	saved time.Time       // when good was flushed last
	// swept: what manifests left there that went while podd was away is removed.
	swept bool

	entries map[string]*entry // by file name
	// pending are checks that are delayed, by file name.
	pending map[string]delayedCheck
	// ignored are names that were logged once as not being manifests.
	ignored map[string]bool
	// The state of the path itself; single: it was a file, not a directory, when it
	// last existed.
	single       bool
	ready        bool
	pathProblem  *pod.Problem
	missingSince time.Time
	changed      bool
}

// delayedCheck is a check of one name that is due later.
type delayedCheck struct {
	at time.Time
	// quiet: nothing changes if the file is broken or lacks pods that it had, since
	// it may not be written completely.
	quiet bool
}

// entry is one file of the directory.
type entry struct {
	stamp stamp
	// young: a later change may have the same stamp.
	young bool
	sum   [sha256.Size]byte
	// read is when it was read, and inRow how many times before that were less than
	// rowGap apart.
	read  time.Time
	inRow int
	manifest.Content
	// problems of the newest content.
	problems []pod.Problem
	// crowded is how much the newest content has if the source has no room for it;
	// else nothing.
	crowded amount
	// holds is how much there is of Content.
	holds amount
}

// New returns a Source; nothing is read before Run.
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
	return &Source{cfg: cfg, log: log, good: lastgood.New(cfg.StateDir, cfg.VolatileDir),
		entries: map[string]*entry{}, pending: map[string]delayedCheck{}, ignored: map[string]bool{}}
}

// Name is pod.SourceFile.
func (s *Source) Name() pod.Source { return pod.SourceFile }

// Run watches until ctx is done. If inotify is not available (no instances left), it
// logs that and relies on rescans.
func (s *Source) Run(ctx context.Context, out chan<- podconfig.Snapshot) error {
	w, events, failed := s.watch()
	if w != nil {
		defer func() {
			_ = w.close()
			for range events { // until the reader has ended
			}
		}()
	}
	return s.loop(ctx, out, w, events, failed)
}

// loop handles events, delayed checks and rescans; w and the channels are nil without
// inotify.
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
			if err := s.handle(ctx, out, w, batch); err != nil {
				return err
			}
		case err := <-failed:
			return err
		case <-timer.C:
			// A write that has been noticed counts, whichever of the two was ready first: on a
			// busy machine a file that is being written was read.
			select {
			case batch := <-events:
				if err := s.handle(ctx, out, w, batch); err != nil {
					return err
				}
			default:
				s.due(w)
			}
		case <-ticker.C:
			s.rescan(w)
		}
	}
}

// handle takes in a batch of events and sends what they change.
func (s *Source) handle(ctx context.Context, out chan<- podconfig.Snapshot, w *watcher, batch []event) error {
	for len(batch) > 0 {
		var first []event
		first, batch = s.untilGone(batch)
		s.events(w, first)
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

// dirItself is the pending name of a rescan.
const dirItself = "."

func (s *Source) due(w *watcher) {
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(s.pending)) {
		l := s.pending[name]
		if now.Before(l.at) {
			continue
		}
		delete(s.pending, name)
		if name == dirItself {
			s.rescan(w)
			return
		}
		s.check(name, true, l.quiet)
	}
}

// untilGone returns the events up to the first that ends pods whatever comes after it,
// which is to be told before the rest.
func (s *Source) untilGone(batch []event) (first, rest []event) {
	for i, e := range batch {
		if s.endsPods(e) {
			return batch[:i+1], batch[i+1:]
		}
	}
	return batch, nil
}

// endsPods says that an event is a deletion that counts at once. A rename does not: a file
// that is renamed to another manifest keeps its pods.
func (s *Source) endsPods(e event) bool {
	return s.cfg.GoneAtOnce && e.mask&unix.IN_DELETE != 0 && s.counts(e.name)
}

// events handles a batch of inotify events.
func (s *Source) events(w *watcher, batch []event) {
	renamed := map[uint32]bool{} // cookies of renames from one manifest to another
	for _, e := range batch {
		if e.mask&unix.IN_MOVED_TO != 0 && s.counts(e.name) {
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
		case s.counts(e.name):
			s.event(e, renamed[e.cookie])
			// The one file is back, or a directory has taken its place.
			again = again || s.single && (s.pathProblem != nil || isDir(s.cfg.Path))
		}
	}
	if again {
		s.rescan(w)
	}
}

// counts says whether an entry of the directory is a manifest.
func (s *Source) counts(name string) bool {
	if s.single {
		return name == filepath.Base(s.cfg.Path)
	}
	return IsManifest(name)
}

func (s *Source) event(e event, renamed bool) {
	switch {
	case e.mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0:
		if had := s.entries[e.name]; had != nil && had.inRow >= burst && time.Since(had.read) < restDelay {
			s.pending[e.name] = delayedCheck{at: had.read.Add(restDelay)}
			return
		}
		delete(s.pending, e.name)
		s.check(e.name, true, false)
	case e.mask&unix.IN_CREATE != 0:
		if s.openForWriting(e.name) {
			s.pending[e.name] = delayedCheck{at: time.Now().Add(createDelay), quiet: true}
			return
		}
		delete(s.pending, e.name)
		s.check(e.name, true, false)
	case e.mask&unix.IN_MODIFY != 0:
		// Rescans skip it until its writer closes it or pauses. A file that was just
		// created is not delayed any further.
		if l, waiting := s.pending[e.name]; !waiting || !l.quiet {
			s.pending[e.name] = delayedCheck{at: time.Now().Add(writeDelay)}
		}
	case e.mask&unix.IN_MOVED_FROM != 0 && renamed:
		s.check(e.name, true, false)
	case s.endsPods(e):
		s.remove(e.name) // whatever has that name by now has an event of its own
	case e.mask&(unix.IN_MOVED_FROM|unix.IN_DELETE) != 0:
		s.pending[e.name] = delayedCheck{at: time.Now().Add(goneDelay), quiet: true}
	case e.mask&unix.IN_ATTRIB != 0:
		if _, waiting := s.pending[e.name]; !waiting {
			s.check(e.name, false, false)
		}
	}
}

// openForWriting guesses whether a file that was just created is still being written:
// true for a regular file with one link, false for one that was linked into place.
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
