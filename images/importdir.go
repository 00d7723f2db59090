package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"podd/internal/pod"
)

const (
	// importSettle is when to look again at a file that is being written, if it
	// is not seen closed before.
	importSettle = 2 * time.Second
	// importAgain is when an import that failed for the runtime's sake, not the
	// archive's, is tried again.
	importAgain = 5 * time.Second
)

// importSuffixes are what an image directory takes; the rest is left alone.
var importSuffixes = []string{".tar", ".tar.gz", ".tgz", ".tar.zst"}

// BadArchiveError says that a file cannot be imported as it is: trying again
// before it changes is of no use.
type BadArchiveError struct {
	File string
	// Reason is a sentence without the file's name.
	Reason string
}

func (e *BadArchiveError) Error() string {
	return fmt.Sprintf("image archive %s: %s", e.File, e.Reason)
}

// Importer brings one archive into the runtime, pinned, and returns the names of
// its images, at least one. A *BadArchiveError blames the file; any other error
// blames the moment.
type Importer interface {
	Import(ctx context.Context, file string) ([]string, error)
}

// ImageLookup says what the runtime has: nil for an image that the runtime does not have.
type ImageLookup interface {
	ImageStatus(ctx context.Context, ref string) (*pod.Image, error)
}

// ImportConfig is what an ImportDir needs; all but Extra, Log, Registerer,
// Progress and Imported must be set.
type ImportConfig struct {
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
	Progress func(ImportProgress)
	// Imported is told the names of new images, so that pods that wait for
	// them can be woken. It must not block.
	Imported func(refs []string)
}

// ImportProgress is for a person who watches.
type ImportProgress struct {
	File string
	Size int64
	// Done: the import has ended, with Err or with Refs.
	Done bool
	Refs []string
	Err  error
	Took time.Duration
}

// ImportDir imports the archives of the image directory: at start, when they
// appear or change, and again when the runtime has lost what they hold. The
// images are pinned, so that no garbage collection takes them; removing the file
// does not remove the image.
type ImportDir struct {
	cfg     ImportConfig
	log     *slog.Logger
	metrics *importMetrics
	poke    chan struct{}
	state   *importState

	mu       sync.Mutex
	problems map[string]pod.Problem
	// settled is closed while nothing that was seen is still to be imported.
	settled chan struct{}
	isDone  bool
	// closed are files that were seen complete since the last look.
	closed map[string]struct{}
	// failed is the shape of files that were refused, not to be read again.
	failed map[string]importShape
	// recheck asks for a look at what the runtime has.
	recheck bool
}

// NewImportDir reads the state file and starts nothing.
func NewImportDir(cfg ImportConfig) *ImportDir {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &ImportDir{
		cfg: cfg, log: log, metrics: newImportMetrics(cfg.Registerer),
		poke: make(chan struct{}, 1), state: loadImportState(cfg.StateFile),
		problems: map[string]pod.Problem{}, settled: make(chan struct{}),
		closed: map[string]struct{}{}, failed: map[string]importShape{}, recheck: true,
	}
}

// Run imports until ctx is done, and returns its cause. It blocks.
func (d *ImportDir) Run(ctx context.Context) error {
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
func (d *ImportDir) Recheck() {
	d.mu.Lock()
	d.recheck = true
	d.mu.Unlock()
	d.wake()
}

// Missing is told of an image that somebody needs and the runtime does not
// have. If it came from an archive that is still there, it is imported again;
// Wait waits for that. Names that no archive had cost nothing.
func (d *ImportDir) Missing(ref string) {
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
func (d *ImportDir) Holds(ref string) bool {
	name := fullName(ref)
	return name != "" && slices.ContainsFunc(d.state.refs(), func(known string) bool { return fullName(known) == name })
}

// Refs are the names of the images that came from archives that are still there.
func (d *ImportDir) Refs() []string { return d.state.refs() }

// Wait blocks while an archive that was there is not imported yet, so that
// nobody pulls an image that lies at hand. It returns at once when nothing is to
// be done or what is left cannot be imported, and with ctx's error when that is
// done first. A file that is being written for long holds it up as long: give
// ctx a deadline.
func (d *ImportDir) Wait(ctx context.Context) error {
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

// Problems are the files that could not be imported, by name.
func (d *ImportDir) Problems() []pod.Problem {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]pod.Problem, 0, len(d.problems))
	for _, p := range d.problems {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b pod.Problem) int { return strings.Compare(a.Origin, b.Origin) })
	return all
}

func (d *ImportDir) wake() {
	select {
	case d.poke <- struct{}{}:
	default:
	}
}

// round looks at the directories and imports what is new. It returns when to
// look again without being woken; 0 for never.
func (d *ImportDir) round(ctx context.Context) time.Duration {
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
		return importAgain
	}
	if next == 0 {
		d.settle()
	}
	return next
}

// settle lets Wait return, unless somebody has found more to do.
func (d *ImportDir) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.recheck && len(d.closed) == 0 && !d.isDone {
		d.isDone = true
		close(d.settled)
	}
}

// unsettle makes Wait block. The caller holds mu.
func (d *ImportDir) unsettleLocked() {
	if d.isDone {
		d.isDone = false
		d.settled = make(chan struct{})
	}
}

// archive is a file of an image directory.
type archive struct {
	path  string
	shape importShape
}

// candidates lists the archives, smallest first, so that the sandbox image is
// not behind a large one. Files that may still be written wait; next says for
// how long.
func (d *ImportDir) candidates(closed map[string]struct{}, now time.Time) (found []archive, next time.Duration) {
	there := map[string]struct{}{}
	for _, dir := range append([]string{d.cfg.Dir}, d.cfg.Extra...) {
		entries, err := d.list(dir)
		if err != nil {
			d.problem(dir, err)
			there[dir] = struct{}{} // the problem stays
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if !isArchiveName(e.Name()) {
				continue
			}
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() {
				continue // a link to nowhere, a directory, a pipe
			}
			there[path] = struct{}{}
			if wait := beingWritten(path, info, now); wait > 0 && !d.state.knows(path, shapeOf(info)) {
				if _, ok := closed[path]; !ok {
					next = max(next, wait)
					continue
				}
			}
			found = append(found, archive{path: path, shape: shapeOf(info)})
		}
	}
	d.forgetProblems(there)
	slices.SortStableFunc(found, func(a, b archive) int { return int(min(max(a.shape.Size-b.shape.Size, -1), 1)) })
	return found, next
}

// list reads an image directory. The first one is made, others may be missing.
func (d *ImportDir) list(dir string) ([]fs.DirEntry, error) {
	if dir == d.cfg.Dir {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the image directory: %w", err)
		}
	}
	entries, err := os.ReadDir(dir)
	switch {
	case dir != d.cfg.Dir && errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the image directory: %w", err)
	}
	return entries, nil
}

// beingWritten says how long to leave a file alone, or 0: the kernel gives a read
// lease only on a file that nobody has open for writing. On a filesystem without
// leases the age decides.
func beingWritten(path string, info fs.FileInfo, now time.Time) time.Duration {
	f, err := os.Open(path)
	if err != nil {
		return 0 // importing it will say why
	}
	defer f.Close() // which gives the lease back
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	switch age := now.Sub(info.ModTime()); {
	case err == nil:
		return 0
	case errors.Is(err, unix.EAGAIN):
		return importSettle
	case age >= 0 && age < importSettle:
		return importSettle - age
	default:
		return 0
	}
}

func isArchiveName(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.ContainsFunc(importSuffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// one imports an archive unless that was done. The error is of the kind that
// goes away; a bad archive is a problem, not an error.
func (d *ImportDir) one(ctx context.Context, f archive, recheck bool) error {
	d.mu.Lock()
	refused := d.failed[f.path] == f.shape
	d.mu.Unlock()
	if refused {
		return nil
	}
	have, err := d.have(ctx, f, recheck)
	if err != nil || have {
		return err
	}
	d.mu.Lock()
	d.unsettleLocked()
	d.mu.Unlock()
	began := time.Now()
	d.progress(ImportProgress{File: f.path, Size: f.shape.Size})
	refs, err := d.cfg.Importer.Import(ctx, f.path)
	if err == nil && len(refs) == 0 {
		err = &BadArchiveError{File: f.path, Reason: "names no image"}
	}
	d.progress(ImportProgress{File: f.path, Size: f.shape.Size, Done: true, Refs: refs, Err: err, Took: time.Since(began)})
	d.metrics.observe(err, time.Since(began))
	if err == nil {
		return d.imported(f, refs, time.Since(began))
	}
	if ctx.Err() != nil {
		return err
	}
	d.problem(f.path, err)
	if _, bad := errors.AsType[*BadArchiveError](err); bad {
		d.mu.Lock()
		d.failed[f.path] = f.shape
		d.mu.Unlock()
		return nil
	}
	return err
}

// have says whether the runtime has all images of an archive that was imported
// before, in this shape or with this content.
func (d *ImportDir) have(ctx context.Context, f archive, recheck bool) (bool, error) {
	known, ok := d.state.get(f.path)
	if !ok {
		return false, nil
	}
	if known.Shape != f.shape {
		digest, err := digestFile(f.path)
		if err != nil || digest != known.Digest {
			return false, nil
		}
		known.Shape = f.shape // touched, copied anew, restored: the same content
		d.state.put(f.path, known)
		recheck = true
	}
	if !recheck {
		return true, nil
	}
	var missing []string
	for _, ref := range known.Refs {
		image, err := d.cfg.Images.ImageStatus(ctx, ref)
		if err != nil {
			return false, fmt.Errorf("ask the runtime for image %s: %w", ref, err)
		}
		if image == nil {
			missing = append(missing, ref)
		}
	}
	if len(missing) > 0 {
		d.log.Info("images of the image directory are gone from the runtime; importing again", "file", f.path, "images", missing)
	}
	return len(missing) == 0, nil
}

func (d *ImportDir) imported(f archive, refs []string, took time.Duration) error {
	d.mu.Lock()
	delete(d.problems, f.path)
	delete(d.failed, f.path)
	d.mu.Unlock()
	d.log.Info("imported images", "file", f.path, "images", refs, "took", took.Round(time.Millisecond))
	digest, err := digestFile(f.path)
	if err == nil {
		err = d.state.put(f.path, importRecord{Shape: f.shape, Digest: digest, Refs: refs})
	}
	if err != nil { // the next start imports again, nothing worse
		d.log.Warn("remember an imported archive", "file", f.path, "error", err)
	}
	if d.cfg.Imported != nil {
		d.cfg.Imported(refs)
	}
	return nil
}

func (d *ImportDir) progress(p ImportProgress) {
	if d.cfg.Progress != nil {
		d.cfg.Progress(p)
	}
}

// problem notes what is wrong, and logs it when that is news.
func (d *ImportDir) problem(path string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, known := d.problems[path]
	p := pod.Problem{Origin: path, Message: err.Error(), Since: time.Now()}
	if known && old.Message == p.Message {
		return
	}
	d.problems[path] = p
	d.log.Warn("images are not imported", "from", path, "error", err)
}

// forgetProblems drops what was said of files that are gone, and of directories
// that are well.
func (d *ImportDir) forgetProblems(there map[string]struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path := range d.problems {
		if _, ok := there[path]; !ok {
			delete(d.problems, path)
		}
	}
	for path := range d.failed {
		if _, ok := there[path]; !ok {
			delete(d.failed, path)
		}
	}
}
