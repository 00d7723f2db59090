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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// rest is how long a worker rests after compressing, in times of what it took: a
// container that floods its log must not buy podd a whole processor.
const rest = 3

// tidier removes and compresses rotated files.
type tidier struct {
	keep    int // rotated files
	log     *slog.Logger
	metrics *metrics

	mu    sync.Mutex
	queue []string          // live logs whose files are to be compressed; guarded by mu
	busy  map[string]string // live log → half-made file; guarded by mu
	poke  chan struct{}
}

func newTidier(keep int, log *slog.Logger, m *metrics) *tidier {
	return &tidier{keep: keep, log: log, metrics: m, busy: map[string]string{}, poke: make(chan struct{}, 1)}
}

// rotated removes at once what is too much, and leaves the rest to the workers.
func (t *tidier) rotated(log string) {
	if err := t.prune(log); err != nil {
		t.log.Warn("rotated logs not removed", "log", log, "error", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.queue, log) {
		return
	}
	t.queue = append(t.queue, log)
	t.pokeLocked()
}

func (t *tidier) pokeLocked() {
	select {
	case t.poke <- struct{}{}:
	default:
	}
}

// files are the names beside a live log, with their directory.
func files(log string) ([]string, error) {
	dir, base := filepath.Split(log)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), base+".") && !e.IsDir() {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

// prune removes what is too much beside a live log.
func (t *tidier) prune(log string) error {
	todo, err := t.look(log)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range todo.Remove {
		if err := os.Remove(f); err == nil {
			t.metrics.pruned.Inc()
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (t *tidier) look(log string) (tidying, error) {
	t.mu.Lock()
	busy := t.busy[log]
	t.mu.Unlock()
	names, err := files(log)
	return tidy(names, t.keep, busy), err
}

// run compresses until ctx ends.
func (t *tidier) run(ctx context.Context) {
	for {
		log, ok := t.take()
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
		t.give(log)
		if err != nil && ctx.Err() == nil {
			t.log.Warn("rotated log not compressed", "log", log, "error", err)
		}
		select {
		case <-time.After(rest * took):
		case <-ctx.Done():
			return
		}
	}
}

// take is the next log in the queue that no other worker is at.
func (t *tidier) take() (string, bool) {
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

// give ends the work on a log; another worker may have waited for it.
func (t *tidier) give(log string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, log)
	if len(t.queue) > 0 {
		t.pokeLocked()
	}
}

// compressFirst compresses the oldest file that waits for it, and asks for
// another turn when there are more.
func (t *tidier) compressFirst(ctx context.Context, log string) error {
	todo, err := t.look(log)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(todo.Compress) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	file := todo.Compress[0]
	t.mu.Lock()
	t.busy[log] = file + suffixUnfit
	if len(todo.Compress) > 1 {
		t.queue = append(t.queue, log)
	}
	t.mu.Unlock()
	err = compress(ctx, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // pruned, or gone with its container
	}
	return err
}

// compress replaces a file by a compressed one. A file that goes meanwhile is
// not brought back.
func compress(ctx context.Context, file string) (err error) {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	tmp := file + suffixUnfit
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp) // the next tidying would
		}
	}()
	w := gzip.NewWriter(out)
	_, err = io.Copy(w, &endable{ctx, in})
	err = errors.Join(err, w.Close(), out.Close())
	if err != nil {
		return fmt.Errorf("compress %s: %w", file, err)
	}
	if _, err := os.Lstat(file); err != nil {
		return err
	}
	if err := os.Rename(tmp, file+suffixGzip); err != nil {
		return err
	}
	return os.Remove(file)
}

// endable is a reader that ends with its context.
type endable struct {
	ctx context.Context
	r   io.Reader
}

func (e *endable) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.r.Read(p)
}
