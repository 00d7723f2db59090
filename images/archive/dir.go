package archive

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podd/internal/imageref"
	"podd/internal/pod"
	"podd/internal/wake"
)

// retryAfter is the delay before an import is retried that failed because of the runtime.
const retryAfter = 5 * time.Second

// visibleTimeout bounds the wait until CRI shows an imported image; visiblePollInterval is
// the time between two looks. CRI has no event for it.
const (
	visibleTimeout      = 2 * time.Second
	visiblePollInterval = 5 * time.Millisecond
)

// InvalidError reports that a file cannot be imported; a retry before it changes is
// useless.
type InvalidError struct {
	File string
	// Reason is a sentence without the file's name.
	Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("image archive %s: %s", e.File, e.Reason)
}

// Importer imports one archive into the runtime, pins its images, and returns their
// names, at least one. An *InvalidError blames the file; any other error is temporary.
type Importer interface {
	Import(ctx context.Context, file string) ([]string, error)
}

// ImageLookup queries the runtime: nil if it does not have the image.
type ImageLookup interface {
	ImageStatus(ctx context.Context, ref string) (*pod.Image, error)
}

// Config configures a Dir; all but ExtraDirs, Log, Registerer, Progress and Imported must be
// set.
type Config struct {
	// Dir is the image directory; it is created if it is missing.
	Dir string
	// ExtraDirs are further directories, such as the one that comes with podd's
	// package; they may be missing.
	ExtraDirs []string
	// StateFile records what was imported; below --root-dir.
	StateFile string
	Importer  Importer
	Images    ImageLookup
	Log       *slog.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer
	// Progress is called before (Err and Refs nil) and after each import.
	Progress func(Progress)
	// Imported is called with the names of new images, to wake the pods that wait for
	// them. It must not block.
	Imported func(refs []string)
}

// Progress is shown to users while images are imported.
type Progress struct {
	File string
	Size int64
	// Done says that the import has finished, with Err or with Refs.
	Done bool
	Refs []string
	Err  error
	Took time.Duration
}

// Dir imports the archives of the image directory: at start, when they appear or
// change, and again when the runtime has lost their images. The images are pinned
// against garbage collection; removing the file does not remove the image.
type Dir struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	poke    wake.Signal
	state   *state

	mu       sync.Mutex
	problems map[string]pod.Problem
	// settled is closed while every archive that was seen has been handled.
	settled   chan struct{}
	isSettled bool
	// closedFiles are files that were completed since the last sync.
	closedFiles map[string]struct{}
	// rejected has the stamps of rejected files. Those are not read again.
	rejected map[string]fileStamp
	// recheck says that the next sync compares with the images that the runtime has.
	recheck bool
}

// New reads the state file. It starts nothing.
func New(cfg Config) *Dir {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Dir{
		cfg: cfg, log: log, metrics: newMetrics(cfg.Registerer),
		poke: wake.New(), state: loadState(cfg.StateFile),
		problems: map[string]pod.Problem{}, settled: make(chan struct{}),
		closedFiles: map[string]struct{}{}, rejected: map[string]fileStamp{}, recheck: true,
	}
}

// Run imports until ctx is done, and returns its cause. It blocks.
func (d *Dir) Run(ctx context.Context) error {
	watchCtx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { d.watch(watchCtx) })
	for {
		var again time.Time
		if next := d.sync(ctx); next > 0 {
			again = time.Now().Add(next)
		}
		if !wake.Until(ctx, d.poke, again) {
			return context.Cause(ctx)
		}
	}
}

// Recheck makes Run compare its records with the runtime's images, as after the runtime
// was replaced.
func (d *Dir) Recheck() {
	d.mu.Lock()
	d.recheck = true
	d.mu.Unlock()
	d.wake()
}

// ReportMissing reports an image that is needed and that the runtime does not have. If it
// came from an archive that still exists, it is imported again, and Wait waits for
// that. Other names cost nothing.
func (d *Dir) ReportMissing(ref string) {
	if !d.state.hasImage(ref) {
		return
	}
	d.mu.Lock()
	d.recheck = true
	d.unsettleLocked()
	d.mu.Unlock()
	d.wake()
}

// HasImage reports whether an image, by any spelling of its name, came from an archive that
// still exists.
func (d *Dir) HasImage(ref string) bool {
	name := imageref.Full(ref)
	return name != "" && slices.ContainsFunc(d.state.refs(), func(known string) bool { return imageref.Full(known) == name })
}

// Refs returns the names of the images from archives that still exist.
func (d *Dir) Refs() []string { return d.state.refs() }

// Wait blocks until all present archives are imported, so that an image that is available
// locally is not pulled. It returns at once if nothing is left to do or the rest cannot be
// imported, and with ctx's error if ctx ends first. A file that takes long to be written
// blocks it for as long: give ctx a deadline.
func (d *Dir) Wait(ctx context.Context) error {
	d.mu.Lock()
	settled := d.settled
	d.mu.Unlock()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Importing reports whether Wait would block.
func (d *Dir) Importing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.isSettled
}

// waitTimeout bounds how long a large archive may delay the pulls of other images.
const waitTimeout = 10 * time.Second

// WaitBriefly is Wait for at most ten seconds. A timeout is not an error; ctx's error
// is.
func (d *Dir) WaitBriefly(ctx context.Context) error {
	waitCtx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	_ = d.Wait(waitCtx)
	return ctx.Err()
}

// Problems returns the files that could not be imported, by name.
func (d *Dir) Problems() []pod.Problem {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]pod.Problem, 0, len(d.problems))
	for _, p := range d.problems {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b pod.Problem) int { return strings.Compare(a.Origin, b.Origin) })
	return all
}

func (d *Dir) wake() {
	d.poke.Notify()
}

// sync lists the directories and imports new archives. It returns the time until the next
// sync without a wake-up; 0 for none.
func (d *Dir) sync(ctx context.Context) time.Duration {
	d.mu.Lock()
	recheck, closed := d.recheck, d.closedFiles
	d.recheck, d.closedFiles = false, map[string]struct{}{}
	d.mu.Unlock()

	files, next := d.candidates(closed, time.Now())
	again := false
	for _, f := range files {
		if ctx.Err() != nil {
			return 0
		}
		if err := d.importFile(ctx, f, recheck); err != nil {
			again = true
		}
	}
	if again {
		// The runtime does not respond: compare with its images again.
		d.mu.Lock()
		d.recheck = d.recheck || recheck
		d.mu.Unlock()
		return retryAfter
	}
	if next == 0 {
		d.settle()
	}
	return next
}

// settle lets Wait return, unless there is more to do.
func (d *Dir) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.recheck && len(d.closedFiles) == 0 && !d.isSettled {
		d.isSettled = true
		close(d.settled)
	}
}

// unsettleLocked makes Wait block.
func (d *Dir) unsettleLocked() {
	if d.isSettled {
		d.isSettled = false
		d.settled = make(chan struct{})
	}
}
