package podlogs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options are those of kubectl logs (v1.PodLogOptions).
type Options struct {
	// Follow goes on until the container has ended.
	Follow bool
	// Tail is the number of lines of the file from its end; negative for all.
	Tail int64
	// Since leaves out what is older; zero for nothing.
	Since time.Time
	// LimitBytes bounds what is written; negative for no bound.
	LimitBytes int64
	// Timestamps begins each line with its time.
	Timestamps bool
}

// All are the options for a whole log as it is.
var All = Options{Tail: -1, LimitBytes: -1}

// timeFormat is RFC 3339 with nine digits of a second, so that times are of one length.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// settle is how long a rotated file is read after a new one has taken its place: the runtime
// may write a last line into it.
const settle = 100 * time.Millisecond

// maxLine bounds a line of a file, in bytes; runtimes split at 16 KiB.
const maxLine = 1 << 20

// Log is where the log of a container is.
type Log struct {
	Path string
	// Ended is closed when the container has ended. It matters only to Follow.
	Ended <-chan struct{}
}

// Read writes the log of a container to out and errs, which may be the same; nil leaves that
// stream out.
//
// The error is ctx's, out's or that of the file; a file that is not there is
// fs.ErrNotExist. Lines that are not in CRI's format are left out.
func Read(ctx context.Context, l Log, o Options, out, errs io.Writer) error {
	path := l.Path
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	r := &reader{options: o, path: path, file: file, left: o.LimitBytes, out: map[string]io.Writer{stdout: out, stderr: errs}}
	defer func() { _ = r.file.Close() }()
	if out == nil {
		delete(r.out, stdout)
	}
	if errs == nil {
		delete(r.out, stderr)
	}
	if o.Follow {
		// Before the first look, so that nothing is missed between the two.
		if r.watch, err = fsnotify.NewWatcher(); err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
		defer func() { _ = r.watch.Close() }()
		if err := r.watch.Add(filepath.Dir(path)); err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
	}
	start, err := tailOffset(file, o.Tail)
	if err != nil {
		return err
	}
	if _, err := file.Seek(start, io.SeekStart); err != nil {
		return err
	}
	err = r.run(ctx, l.Ended)
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// errLimit ends a Read that has written as much as it may.
var errLimit = errors.New("the limit is reached")

type reader struct {
	options Options
	path    string
	file    *os.File
	watch   *fsnotify.Watcher
	out     map[string]io.Writer
	left    int64 // bytes to write; negative for no bound
	// pending is the beginning of a line whose end is not written yet.
	pending []byte
	// open is the stream whose last line was partial.
	open map[string]bool
}

func (r *reader) run(ctx context.Context, ended <-chan struct{}) error {
	r.open = map[string]bool{}
	for {
		over := !r.options.Follow || closed(ended) // before the look: what it wrote is there
		if err := r.drain(ctx); err != nil {
			return err
		}
		if !r.options.Follow {
			return nil
		}
		switch next, err := r.replaced(); {
		case err != nil:
			return err
		case next != nil:
			if err := r.follow(ctx, next); err != nil {
				return err
			}
			continue
		case over:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
		case err := <-r.watch.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) { // after which it is looked at anyway
				return fmt.Errorf("watch %s: %w", r.path, err)
			}
		case <-r.watch.Events:
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// replaced returns the file at the path if it is another one than the one being read.
func (r *reader) replaced() (*os.File, error) {
	now, err := os.Stat(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // between a rotation's two steps, or removed with its container
	}
	if err != nil {
		return nil, err
	}
	have, err := r.file.Stat()
	if err != nil {
		return nil, err
	}
	if os.SameFile(now, have) {
		return nil, nil
	}
	next, err := os.Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return next, err
}

// follow reads the old file to its end, and goes on with the next.
func (r *reader) follow(ctx context.Context, next *os.File) error {
	select {
	case <-time.After(settle):
	case <-ctx.Done():
	}
	err := r.drain(ctx)
	_ = r.file.Close()
	r.file, r.pending = next, nil
	return err
}

// drain writes what the file has from here on.
func (r *reader) drain(ctx context.Context) error {
	lines := bufio.NewReaderSize(r.file, 64<<10)
	for ctx.Err() == nil {
		part, err := lines.ReadSlice('\n')
		switch {
		case len(r.pending)+len(part) > maxLine:
			return fmt.Errorf("%s has a line of more than %d bytes", r.path, maxLine)
		case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF) && len(part) > 0:
			r.pending = append(r.pending, part...)
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if len(r.pending) > 0 {
			part = append(r.pending, part...)
			r.pending = r.pending[:0]
		}
		l, err := parseLine(part)
		if err != nil {
			continue
		}
		if err := r.write(l); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// write writes a line to its stream.
func (r *reader) write(l line) error {
	begins := !r.open[l.stream]
	r.open[l.stream] = l.partial
	out, wanted := r.out[l.stream]
	if !wanted || l.at.Before(r.options.Since) {
		return nil
	}
	if r.options.Timestamps && begins {
		if err := r.bytes(out, l.at.AppendFormat(nil, timeFormat+" ")); err != nil {
			return err
		}
	}
	return r.bytes(out, l.text)
}

func (r *reader) bytes(out io.Writer, text []byte) error {
	limited := r.left >= 0 && int64(len(text)) >= r.left
	if limited {
		text = text[:r.left]
	}
	n, err := out.Write(text)
	if err != nil {
		return err
	}
	if r.left >= 0 {
		r.left -= int64(n)
	}
	if limited {
		return errLimit
	}
	return nil
}

// tailOffset returns where the last lines of a file begin; negative is for all of it. An
// unfinished line at the end counts as one.
func tailOffset(f *os.File, lines int64) (int64, error) {
	if lines < 0 {
		return 0, nil
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	if lines == 0 {
		return end, nil
	}
	buf := make([]byte, 64<<10)
	for at := end; at > 0; {
		n := min(int64(len(buf)), at)
		at -= n
		if _, err := f.ReadAt(buf[:n], at); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0; i = bytes.LastIndexByte(buf[:i], '\n') {
			if at+int64(i) == end-1 {
				continue // the end of the last line
			}
			if lines--; lines == 0 {
				return at + int64(i) + 1, nil
			}
		}
	}
	return 0, nil
}
