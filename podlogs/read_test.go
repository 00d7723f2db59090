package podlogs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podd/internal/filewatch"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// record is a line of a log file, n seconds after start.
func record(n int, stream, tag, text string) string {
	return fmt.Sprintf("%s %s %s %s\n", start.Add(time.Duration(n)*time.Second).Format(time.RFC3339Nano), stream, tag, text)
}

// read opens a log and writes it.
func read(ctx context.Context, l Log, o Options, out, errs io.Writer) error {
	r, err := Open(l, o, new(filewatch.Dirs))
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Copy(ctx, out, errs)
}

func logFile(t *testing.T, records ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(strings.Join(records, "")), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheOptionsOfKubectlLogs(t *testing.T) {
	path := logFile(t,
		record(0, "stdout", "F", "one"), record(1, "stderr", "F", "two"), "garbage\n", record(2, "stdout", "P", "thr"),
		record(3, "stderr", "F", "between"), record(4, "stdout", "F", "ee"), record(5, "stdout", "F:x", ""))
	for name, c := range map[string]struct {
		options func(o *Options)
		want    string
	}{
		"all":         {func(*Options) {}, "one\ntwo\nthrbetween\nee\n\n"},
		"tail":        {func(o *Options) { o.Tail = 2 }, "ee\n\n"},
		"tail 0":      {func(o *Options) { o.Tail = 0 }, ""},
		"tail of all": {func(o *Options) { o.Tail = 1000 }, "one\ntwo\nthrbetween\nee\n\n"},
		"since":       {func(o *Options) { o.Since = start.Add(3 * time.Second) }, "between\nee\n\n"},
		"limit":       {func(o *Options) { o.LimitBytes = 6 }, "one\ntw"},
		"limit 0":     {func(o *Options) { o.LimitBytes = 0 }, ""},
		"timestamps": {func(o *Options) { o.Timestamps = true }, "2026-01-02T03:04:05.000000000Z one\n2026-01-02T03:04:06.000000000Z two\n" +
			"2026-01-02T03:04:07.000000000Z thr2026-01-02T03:04:08.000000000Z between\nee\n2026-01-02T03:04:10.000000000Z \n"},
	} {
		o := WholeLog
		c.options(&o)
		var out bytes.Buffer
		if err := read(t.Context(), Log{path, nil}, o, &out, &out); err != nil || out.String() != c.want {
			t.Errorf("%s: got %q, %v, want %q", name, &out, err, c.want)
		}
	}
	var one, two bytes.Buffer
	if err := read(t.Context(), Log{path, nil}, WholeLog, nil, &two); err != nil || two.String() != "two\nbetween\n" {
		t.Errorf("stderr alone: got %q, %v", &two, err)
	}
	if err := read(t.Context(), Log{path, nil}, WholeLog, &one, nil); err != nil || one.String() != "one\nthree\n\n" {
		t.Errorf("stdout alone: got %q, %v", &one, err)
	}
}

func TestTailOfLongFiles(t *testing.T) {
	var all []string
	for i := range 10000 {
		all = append(all, record(i, "stdout", "F", fmt.Sprintf("line %d %s", i, strings.Repeat("x", i%50))))
	}
	path := logFile(t, all...)
	for _, n := range []int64{1, 2, 999, 1000, 9999, 10000, 10001} {
		o := WholeLog
		o.Tail = n
		var out bytes.Buffer
		if err := read(t.Context(), Log{path, nil}, o, &out, &out); err != nil {
			t.Fatal(err)
		}
		if got, want := int64(strings.Count(out.String(), "\n")), min(n, 10000); got != want {
			t.Errorf("tail %d: got %d lines", n, got)
		}
	}
}

// A runtime splits long lines, and two streams are mixed.
func TestTailOfWholeLines(t *testing.T) {
	path := logFile(t,
		record(0, "stdout", "F", "one"), record(1, "stdout", "P", "t"), record(2, "stderr", "P", "e"), record(3, "stdout", "P", "w"),
		record(4, "stderr", "F", "rr"), "not CRI's\n", record(5, "stdout", "F", "o"), record(6, "stderr", "F", "late"), record(7, "stdout", "P", "open"), record(8, "stdout", "P", " end"))
	const all = "tewrr\no\nlate\nopen end"
	for tail, want := range map[int64]string{
		0: "", 1: "open end", 2: "late\nopen end", 3: "two\nlate\nopen end", 4: all, 5: "one\n" + all, 6: "one\n" + all,
	} {
		o := WholeLog
		o.Tail, o.WholeLines = tail, true
		var out bytes.Buffer
		if err := read(t.Context(), Log{path, nil}, o, &out, &out); err != nil || out.String() != want {
			t.Errorf("tail %d: got %q, %v, want %q", tail, out.String(), err, want)
		}
	}
	long := strings.Repeat("x", 70<<10)
	path = logFile(t, record(0, "stdout", "F", "before"), record(1, "stdout", "P", long), record(2, "stdout", "P", long), record(3, "stdout", "F", "end"))
	for _, stamped := range []bool{false, true} {
		o := WholeLog
		o.Tail, o.WholeLines, o.Timestamps = 1, true, stamped
		var out bytes.Buffer
		if err := read(t.Context(), Log{path, nil}, o, &out, &out); err != nil || strings.Count(out.String(), "2026-") > 1 ||
			!strings.HasSuffix(out.String(), long+long+"end\n") || strings.Contains(out.String(), "before") {
			t.Errorf("a long one, timestamps %v: got %d bytes, %v", stamped, out.Len(), err)
		}
	}
}

func TestErrorsOfFiles(t *testing.T) {
	if err := read(t.Context(), Log{filepath.Join(t.TempDir(), "none"), nil}, WholeLog, io.Discard, io.Discard); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := read(t.Context(), Log{pipe, nil}, WholeLog, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a FIFO, which nobody writes to: got %v", err)
	}
	failing := writer(func([]byte) (int, error) { return 0, io.ErrClosedPipe })
	if err := read(t.Context(), Log{logFile(t, record(0, "stdout", "F", "x")), nil}, WholeLog, failing, failing); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a reader that is gone: got %v", err)
	}
}

// TestALineOfAnyLengthIsWritten: a runtime that does not split lines.
func TestALineOfAnyLengthIsWritten(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", maxLine/8)
	path := logFile(t, record(0, "stdout", "F", "before"), record(1, "stderr", "F", "e"+long), record(2, "stdout", "P", "p"+long),
		strings.Repeat("x", 3*maxLine)+"\n", record(3, "stdout", "F", "q"), record(4, "stderr", "F", "after"))
	const at = "2026-01-02T03:04:0"
	o := WholeLog
	o.Timestamps = true
	var out, errs bytes.Buffer
	if err := read(t.Context(), Log{path, nil}, o, &out, &errs); err != nil {
		t.Fatal(err)
	}
	if want := at + "5.000000000Z before\n" + at + "7.000000000Z p" + long + "q\n"; out.String() != want {
		t.Errorf("stdout: got %d bytes, want %d", out.Len(), len(want))
	}
	if want := at + "6.000000000Z e" + long + "\n" + at + "9.000000000Z after\n"; errs.String() != want {
		t.Errorf("stderr: got %d bytes, want %d", errs.Len(), len(want))
	}
	o.Since = start.Add(3 * time.Second)
	out.Reset()
	if err := read(t.Context(), Log{path, nil}, o, &out, io.Discard); err != nil || out.String() != "q\n" {
		t.Errorf("since after the long ones: got %d bytes, %v", out.Len(), err)
	}
}

// TestWithoutFollowOnlyWhatIsThereIsRead: a container that writes faster than a client reads
// makes no log endless, and the last line no two.
func TestWithoutFollowOnlyWhatIsThereIsRead(t *testing.T) {
	for tail, want := range map[int64]string{-1: "0\n1\n", 1: "1\n", 0: ""} {
		path := logFile(t, record(0, "stdout", "F", "0"), record(1, "stdout", "F", "1"))
		o := WholeLog
		o.Tail = tail
		r, err := Open(Log{path, nil}, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(record(2, "stdout", "F", "2")); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := r.Copy(t.Context(), &out, &out); err != nil || out.String() != want {
			t.Errorf("tail %d: got %q, %v, want %q", tail, &out, err, want)
		}
		r.Close()
		_ = file.Close()
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// safe is a buffer that a test reads while it is written.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.b.Write(p) }
func (s *safe) String() string              { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

// A follower sees each line once, in order, while the file is rotated under it and what
// writes is slow to let go of the old one; and it ends with the container.
func TestFollowingAcrossRotations(t *testing.T) {
	path := logFile(t)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended, done := make(chan struct{}), make(chan error, 1)
	var out safe
	o := WholeLog
	o.Follow = true
	go func() { done <- read(t.Context(), Log{path, ended}, o, &out, &out) }()
	var want strings.Builder
	var late []string
	write := func(n int) {
		text := record(n, "stdout", "F", fmt.Sprint(n))
		half := len(text) / 2
		for _, part := range []string{text[:half], text[half:]} {
			if _, err := file.WriteString(part); err != nil {
				t.Error(err)
			}
		}
		fmt.Fprintln(&want, n)
	}
	for n := range 300 {
		write(n)
		for n == 0 && out.String() == "" { // it has opened the first file
			time.Sleep(time.Millisecond)
		}
		if n%50 != 25 {
			continue
		}
		if err := os.Rename(path, fmt.Sprintf("%s.%d", path, n)); err != nil {
			t.Fatal(err)
		}
		write(n + 1000)
		made := time.Now()
		next, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			t.Fatal(err)
		}
		write(n + 2000) // into the old one
		if time.Since(made) > rotationGrace/2 {
			late = append(late, fmt.Sprintln(n+2000)) // its reader may have left it by now
		}
		_ = file.Close()
		file = next
		write(n + 3000)
		for last := fmt.Sprintln(n + 3000); !strings.HasSuffix(out.String(), last); { // rotations are minutes apart
			time.Sleep(time.Millisecond)
		}
	}
	close(ended)
	select {
	case err := <-done:
		all := want.String()
		for _, line := range late {
			if !strings.Contains(out.String(), line) {
				all = strings.Replace(all, line, "", 1)
			}
		}
		if err != nil || out.String() != all {
			t.Errorf("got %v and\n%s\nwant\n%s", err, out.String(), all)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end with the container")
	}
}

func TestAFollowerThatIsCancelledReturns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := WholeLog
	o.Follow = true
	done := make(chan error, 1)
	path := logFile(t, record(0, "stdout", "F", "x"))
	go func() { done <- read(ctx, Log{path, make(chan struct{})}, o, io.Discard, io.Discard) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestFollowersShareOneInotifyInstance: root has 128 of them.
func TestFollowersShareOneInotifyInstance(t *testing.T) {
	count := func() (n int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			if target, _ := os.Readlink("/proc/self/fd/" + fd.Name()); target == "anon_inode:inotify" {
				n++
			}
		}
		return n
	}
	before := count()
	var dirs filewatch.Dirs
	o := WholeLog
	o.Follow = true
	for range 200 {
		r, err := Open(Log{logFile(t, record(0, "stdout", "F", "x")), make(chan struct{})}, o, &dirs)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
	}
	if n := count() - before; n != 1 {
		t.Errorf("200 followers have %d inotify instances, want one", n)
	}
}
