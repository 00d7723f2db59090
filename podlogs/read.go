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

	"golang.org/x/sys/unix"

	"podd/internal/filewatch"
	"podd/internal/wake"
)

// Options are those of kubectl logs (v1.PodLogOptions).
type Options struct {
	// Follow goes on until the container has ended.
	Follow bool
	// Tail is the number of lines from the end, of the file unless WholeLines; negative for
	// all.
	Tail int64
	// WholeLines makes Tail count the lines that the container wrote. Each may be several
	// lines of the file: runtimes split those that are longer than 16 KiB. The kubelet
	// counts the lines of the file.
	WholeLines bool
	// Since leaves out what is older; zero for nothing.
	Since time.Time
	// LimitBytes bounds what is written; negative for no bound.
	LimitBytes int64
	// Timestamps begins each line with its time.
	Timestamps bool
}

// WholeLog are the options for a whole log as it is.
var WholeLog = Options{Tail: -1, LimitBytes: -1}

// timeFormat is RFC 3339 with nine digits of a second, so that times are of one length.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// rotationGrace is how long a rotated file is read after a new one has taken its place: the
// runtime may write a last line into it.
const rotationGrace = 100 * time.Millisecond

// maxLine bounds how much of a line of a file is held, in bytes: a longer one is written as
// it is read. Runtimes split at 16 KiB, unless they are told not to.
const maxLine = 1 << 20

// Log is where the log of a container is.
type Log struct {
	Path string
	// Ended is closed when the container has ended. It matters only to Follow.
	Ended <-chan struct{}
}

// Reader reads a log once. Create it with Open.
type Reader struct {
	options Options
	path    string
	file    *os.File
	ended   <-chan struct{}
	watch   *filewatch.Subscription // nil without Follow
	// size is how much of the file a Reader without Follow reads.
	size      int64
	out       map[string]io.Writer
	bytesLeft int64 // bytes to write; negative for no bound
	// lineOffset is where the next line of the file begins. streamStarts is, by stream, where
	// reading starts, if that differs.
	lineOffset    int64
	lineBytesRead int64 // bytes of that line that were read
	streamStarts  map[string]int64
	// pending is the beginning of a line that has not been read to its end. longLine is a
	// line that was too long to hold; its beginning is already written.
	pending  []byte
	longLine *line
	// unfinished has the streams with a partial last line.
	unfinished map[string]bool
}

// Open opens a log. A Reader without Follow reads only the lines that the log has at this
// moment. A missing file is fs.ErrNotExist. dirs watches the directory of a log that is
// followed. Close must be called.
func Open(l Log, o Options, dirs *filewatch.Dirs) (*Reader, error) {
	file, err := openRegular(l.Path)
	if err != nil {
		return nil, err
	}
	r := &Reader{options: o, path: l.Path, file: file, ended: l.Ended, bytesLeft: o.LimitBytes, unfinished: map[string]bool{}}
	if err := r.prepare(dirs); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// openRegular opens a file only if it is regular. A pod that writes to the directory of logs
// may have put another kind in its place, and opening a FIFO would block.
func openRegular(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// prepare subscribes to changes of the directory with Follow, and seeks to where reading
// starts.
func (r *Reader) prepare(dirs *filewatch.Dirs) error {
	if r.options.Follow {
		// Before the first look, so that nothing is missed between the two.
		var err error
		if r.watch, err = dirs.Subscribe(filepath.Dir(r.path)); err != nil {
			return fmt.Errorf("watch %s: %w", r.path, err)
		}
	}
	var start, end int64
	var err error
	if r.options.WholeLines && r.options.Tail > 0 {
		r.streamStarts, start, end, err = wholeLinesOffset(r.file, r.options.Tail)
	} else {
		start, end, err = tailOffset(r.file, r.options.Tail)
	}
	if err != nil {
		return err
	}
	r.lineOffset, r.size = start, end-start
	_, err = r.file.Seek(start, io.SeekStart)
	return err
}

// Close closes the log.
func (r *Reader) Close() {
	_ = r.file.Close()
	if r.watch != nil {
		r.watch.Close()
	}
}

// Copy writes the log to out and errs, which may be the same; nil leaves that stream out. It
// is called once, and returns at the log's end; with Follow, when the container has ended. The
// error is ctx's, out's or that of the file. Lines that are not in CRI's format are left out.
func (r *Reader) Copy(ctx context.Context, out, errs io.Writer) error {
	r.out = map[string]io.Writer{}
	if out != nil {
		r.out[stdout] = out
	}
	if errs != nil {
		r.out[stderr] = errs
	}
	err := r.run(ctx)
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// errLimit ends a Copy that has written as much as it may.
var errLimit = errors.New("the limit is reached")

func (r *Reader) run(ctx context.Context) error {
	if !r.options.Follow {
		return r.drain(ctx, io.LimitReader(r.file, r.size))
	}
	for {
		over := closed(r.ended) // before the look: what it wrote is there
		if err := r.drain(ctx, r.file); err != nil {
			return err
		}
		switch next, err := r.openReplacement(); {
		case err != nil:
			return err
		case next != nil:
			if err := r.switchFile(ctx, next); err != nil {
				return err
			}
			continue
		case over:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.ended:
		case _, ok := <-r.watch.Changed:
			if !ok {
				return fmt.Errorf("watch %s: notifications of changes have ended", r.path)
			}
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

// openReplacement returns the file at the path if it is another one than the one being read.
func (r *Reader) openReplacement() (*os.File, error) {
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
	next, err := openRegular(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return next, err
}

// switchFile reads the old file to its end, and goes on with the next.
func (r *Reader) switchFile(ctx context.Context, next *os.File) error {
	wake.Sleep(ctx, rotationGrace)
	err := r.drain(ctx, r.file)
	_ = r.file.Close()
	r.file, r.pending, r.longLine, r.streamStarts = next, nil, nil, nil
	return err
}

// drain writes what a file has from here on.
func (r *Reader) drain(ctx context.Context, from io.Reader) error {
	lines := bufio.NewReaderSize(from, 64<<10)
	for ctx.Err() == nil {
		part, err := lines.ReadSlice('\n')
		switch {
		case err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF):
			return err
		case len(part) == 0:
			return nil
		}
		if err := r.addPart(part, err == nil); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// addPart writes a part of a line, or keeps it until the line is whole.
func (r *Reader) addPart(part []byte, last bool) error {
	begins := r.lineOffset
	if last {
		r.lineOffset += int64(len(part)) + r.lineBytesRead
		r.lineBytesRead = 0
	} else {
		r.lineBytesRead += int64(len(part))
	}
	if r.longLine != nil {
		return r.writeLongPart(part, last)
	}
	if len(r.pending) > 0 || !last {
		r.pending = append(r.pending, part...)
		part = r.pending
	}
	long := len(part) > maxLine
	if !last && !long {
		return nil
	}
	r.pending = r.pending[:0]
	l, err := parseLine(part)
	if begins < r.streamStarts[l.stream] {
		l, err = line{}, errSkipped
	}
	if !last {
		r.longLine = &line{stream: l.stream, at: l.at, partial: l.partial} // of no stream if it is not CRI's
	}
	if err != nil {
		return nil
	}
	return r.write(l)
}

// writeLongPart writes the next part of a long line.
func (r *Reader) writeLongPart(part []byte, last bool) error {
	l := *r.longLine
	if last {
		r.longLine = nil
		if l.partial {
			part = bytes.TrimSuffix(part, []byte{'\n'})
		}
	}
	if out, wanted := r.out[l.stream]; wanted && !l.at.Before(r.options.Since) {
		return r.writeLimited(out, part)
	}
	return nil
}

// write writes a line to its stream.
func (r *Reader) write(l line) error {
	begins := !r.unfinished[l.stream]
	r.unfinished[l.stream] = l.partial
	out, wanted := r.out[l.stream]
	if !wanted || l.at.Before(r.options.Since) {
		return nil
	}
	if r.options.Timestamps && begins {
		if err := r.writeLimited(out, l.at.AppendFormat(nil, timeFormat+" ")); err != nil {
			return err
		}
	}
	return r.writeLimited(out, l.text)
}

func (r *Reader) writeLimited(out io.Writer, text []byte) error {
	limited := r.bytesLeft >= 0 && int64(len(text)) >= r.bytesLeft
	if limited {
		text = text[:r.bytesLeft]
	}
	n, err := out.Write(text)
	if err != nil {
		return err
	}
	if r.bytesLeft >= 0 {
		r.bytesLeft -= int64(n)
	}
	if limited {
		return errLimit
	}
	return nil
}
