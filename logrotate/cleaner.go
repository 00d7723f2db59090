package logrotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"podd/internal/wake"
)

// workerRestFactor is how long a worker rests after compressing, as a multiple of the time
// that took: a container that floods its log must not get a whole processor of podd's.
const workerRestFactor = 3

// cleaner removes and compresses rotated files.
type cleaner struct {
	maxRotated int // how many rotated files of a log stay
	log        *slog.Logger
	metrics    *metrics
	// sync forces a file or directory to the disk.
	sync func(*os.File) error

	mu    sync.Mutex
	queue []string          // live logs with files to compress; guarded by mu
	busy  map[string]string // live log → half-made file; guarded by mu
	poke  wake.Signal
}

func newCleaner(maxRotated int, log *slog.Logger, m *metrics) *cleaner {
	return &cleaner{maxRotated: maxRotated, log: log, metrics: m, sync: (*os.File).Sync, busy: map[string]string{}, poke: wake.New()}
}

// rotated removes the surplus of log at once and leaves the rest to the workers. name is
// the log's name in d.
func (t *cleaner) rotated(log string, d dir, name string) {
	if err := t.prune(log, d, name); err != nil {
		t.log.Warn("cannot remove rotated logs", "log", log, "error", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.queue, log) {
		return
	}
	t.queue = append(t.queue, log)
	t.pokeLocked()
}

func (t *cleaner) pokeLocked() {
	t.poke.Notify()
}

// prune removes the surplus of rotated files of a live log.
func (t *cleaner) prune(log string, d dir, name string) error {
	todo, err := t.plan(log, d, name)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range todo.Remove {
		if err := d.remove(f); err == nil {
			t.metrics.pruned.Inc()
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (t *cleaner) plan(log string, d dir, name string) (cleanupPlan, error) {
	t.mu.Lock()
	busy := t.busy[log]
	t.mu.Unlock()
	names, err := d.files(name + ".")
	return planCleanup(names, t.maxRotated, busy), err
}

// run compresses until ctx ends.
func (t *cleaner) run(ctx context.Context) {
	for {
		log, ok := t.acquireLog()
		if !ok {
			select {
			case <-t.poke:
				continue
			case <-ctx.Done():
				return
			}
		}
		began := time.Now()
		err := t.compressFirst(ctx, log)
		took := time.Since(began)
		t.releaseLog(log)
		if err != nil && ctx.Err() == nil {
			t.log.Warn("cannot compress rotated log", "log", log, "error", err)
		}
		select {
		case <-time.After(workerRestFactor * took):
		case <-ctx.Done():
			return
		}
	}
}

// acquireLog returns the next log in the queue that no other worker is working on.
func (t *cleaner) acquireLog() (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, log := range t.queue {
		if _, busy := t.busy[log]; !busy {
			t.queue = append(t.queue[:i], t.queue[i+1:]...)
			t.busy[log] = ""
			return log, true
		}
	}
	return "", false
}

// releaseLog ends the work on a log; another worker may have waited for it.
func (t *cleaner) releaseLog(log string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, log)
	if len(t.queue) > 0 {
		t.pokeLocked()
	}
}

// compressFirst compresses the oldest file that waits for it, and asks for
// another turn when there are more.
func (t *cleaner) compressFirst(ctx context.Context, log string) error {
	d, name, err := openDir(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone with its container
	}
	if err != nil {
		return err
	}
	defer d.close()
	todo, err := t.plan(log, d, name)
	if err != nil || len(todo.Compress) == 0 {
		return err
	}
	file := todo.Compress[0]
	t.mu.Lock()
	t.busy[log] = file + suffixTemp
	if len(todo.Compress) > 1 {
		t.queue = append(t.queue, log)
	}
	t.mu.Unlock()
	err = t.compress(ctx, d, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // pruned, or gone with its container
	}
	return err
}

// compress replaces a file by a compressed one. It does not bring back a file that is
// removed meanwhile. It removes the file only when the compressed one is on the disk
// under its name: a power cut leaves one of them whole.
func (t *cleaner) compress(ctx context.Context, d dir, file string) (err error) {
	in, info, err := d.open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	tmp := file + suffixTemp
	if err := d.remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := d.create(tmp, info.Mode())
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = d.remove(tmp) // the next cleanup would
		}
	}()
	w := gzip.NewWriter(out)
	_, err = io.Copy(w, readerWithContext(ctx, in))
	err = errors.Join(err, w.Close(), t.sync(out), out.Close())
	if err != nil {
		return fmt.Errorf("compress %s: %w", in.Name(), err)
	}
	if !d.there(file) {
		return fs.ErrNotExist
	}
	if err := d.rename(tmp, file+suffixGzip); err != nil {
		return err
	}
	if err := t.sync(d.file); err != nil {
		return fmt.Errorf("keep %s: %w", file+suffixGzip, err)
	}
	return d.remove(file)
}

// readerFunc is Read alone.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// readerWithContext is a reader that ends with ctx.
func readerWithContext(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}
