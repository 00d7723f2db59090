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
)

// retryAfter is when an import that failed for the runtime's sake, not the
// archive's, is tried again.
const retryAfter = 5 * time.Second

// InvalidError says that a file cannot be imported as it is: trying again
// before it changes is of no use.
type InvalidError struct {
	File string
	// Reason is a sentence without the file's name.
	Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("image archive %s: %s", e.File, e.Reason)
}

// Importer brings one archive into the runtime, pinned, and returns the names of
// its images, at least one. An *InvalidError blames the file; any other error
// blames the moment.
type Importer interface {
	Import(ctx context.Context, file string) ([]string, error)
}

// ImageLookup says what the runtime has: nil for an image that the runtime does not have.
type ImageLookup interface {
	ImageStatus(ctx context.Context, ref string) (*pod.Image, error)
}

// Config is what an Dir needs; all but Extra, Log, Registerer,
// Progress and Imported must be set.
type Config struct {
	// Dir is the image directory; it is made if it is not there.
	Dir string
	// Extra are further directories, such as the one that comes with podd's
	// package; they may be missing.
	Extra []string
	// StateFile remembers what was imported; below --root-dir.
	StateFile string
	Importer  Importer
	Images    ImageLookup
	Log       *slog.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer
	// Progress is told before (Err and Refs nil) and after each import.
	Progress func(Progress)
	// Imported is told the names of new images, so that pods that wait for
	// them can be woken. It must not block.
	Imported func(refs []string)
}

// Progress is for a person who watches.
type Progress struct {
	File string
	Size int64
	// Done: the import has ended, with Err or with Refs.
	Done bool
	Refs []string
	Err  error
	Took time.Duration
}

// Dir imports the archives of the image directory: at start, when they
// appear or change, and again when the runtime has lost what they hold. The
// images are pinned, so that no garbage collection takes them; removing the file
// does not remove the image.
type Dir struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	poke    chan struct{}
	state   *state

	mu       sync.Mutex
	problems map[string]pod.Problem
	// settled is closed while nothing that was seen is still to be imported.
	settled chan struct{}
	isDone  bool
	// closed are files that were seen complete since the last look.
	closed map[string]struct{}
	// failed is the shape of files that were refused, not to be read again.
	failed map[string]shape
	// recheck asks for a look at what the runtime has.
	recheck bool
}

// New reads the state file and starts nothing.
func New(cfg Config) *Dir {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Dir{
		cfg: cfg, log: log, metrics: newMetrics(cfg.Registerer),
		poke: make(chan struct{}, 1), state: loadState(cfg.StateFile),
		problems: map[string]pod.Problem{}, settled: make(chan struct{}),
		closed: map[string]struct{}{}, failed: map[string]shape{}, recheck: true,
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
		next := d.round(ctx)
		var timer <-chan time.Time
		if next > 0 {
			timer = time.After(next)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.poke:
		case <-timer:
		}
	}
}

// Recheck makes Run compare with what the runtime has, as after it was replaced.
func (d *Dir) Recheck() {
	d.mu.Lock()
	d.recheck = true
	d.mu.Unlock()
	d.wake()
}

// Missing is told of an image that somebody needs and the runtime does not
// have. If it came from an archive that is still there, it is imported again;
// Wait waits for that. Names that no archive had cost nothing.
func (d *Dir) Missing(ref string) {
	if !d.state.had(ref) {
		return
	}
	d.mu.Lock()
	d.recheck = true
	d.unsettleLocked()
	d.mu.Unlock()
	d.wake()
}

// Holds says whether an image, by any spelling of its name, came from an archive
// that is still there.
func (d *Dir) Holds(ref string) bool {
	name := imageref.Full(ref)
	return name != "" && slices.ContainsFunc(d.state.refs(), func(known string) bool { return imageref.Full(known) == name })
}

// Refs are the names of the images that came from archives that are still there.
func (d *Dir) Refs() []string { return d.state.refs() }

// Wait blocks while an archive that was there is not imported yet, so that
// nobody pulls an image that lies at hand. It returns at once when nothing is to
// be done or what is left cannot be imported, and with ctx's error when that is
// done first. A file that is being written for long holds it up as long: give
// ctx a deadline.
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

// waitPatience bounds how long one large archive may hold up the pulls of images
// that are not in it.
const waitPatience = 10 * time.Second

// WaitBriefly is Wait for ten seconds at most. Its error is ctx's: that the time
// was too short is none.
func (d *Dir) WaitBriefly(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, waitPatience)
	defer cancel()
	_ = d.Wait(patience)
	return ctx.Err()
}

// Problems are the files that could not be imported, by name.
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
	select {
	case d.poke <- struct{}{}:
	default:
	}
}

// round looks at the directories and imports what is new. It returns when to
// look again without being woken; 0 for never.
func (d *Dir) round(ctx context.Context) time.Duration {
	d.mu.Lock()
	recheck, closed := d.recheck, d.closed
	d.recheck, d.closed = false, map[string]struct{}{}
	d.mu.Unlock()

	files, next := d.candidates(closed, time.Now())
	again := false
	for _, f := range files {
		if ctx.Err() != nil {
			return 0
		}
		if err := d.one(ctx, f, recheck); err != nil {
			again = true
		}
	}
	if again {
		// The runtime does not answer: what is known of it must be asked again.
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

// settle lets Wait return, unless somebody has found more to do.
func (d *Dir) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.recheck && len(d.closed) == 0 && !d.isDone {
		d.isDone = true
		close(d.settled)
	}
}

// unsettle makes Wait block. The caller holds mu.
func (d *Dir) unsettleLocked() {
	if d.isDone {
		d.isDone = false
		d.settled = make(chan struct{})
	}
}
