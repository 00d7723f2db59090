package logrotate

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podd/internal/pod"
)

// runtime writes logs as a container runtime does: to the file that it has open.
type runtime struct {
	mu     sync.Mutex
	open   map[string]*os.File
	logs   []pod.ContainerLog
	fails  error
	hangs  map[string]chan struct{}
	lists  int
	opened int
}

func (r *runtime) RunningLogs(context.Context) ([]pod.ContainerLog, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists++
	return slices.Clone(r.logs), nil
}

func (r *runtime) ReopenContainerLog(ctx context.Context, id string) error {
	r.mu.Lock()
	hang := r.hangs[id]
	r.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened++
	if r.fails != nil {
		return r.fails
	}
	return r.openLocked(id)
}

func (r *runtime) openLocked(id string) error {
	for _, l := range r.logs {
		if l.ID == id {
			if f := r.open[id]; f != nil {
				f.Close()
			}
			f, err := os.OpenFile(l.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
			r.open[id] = f
			return err
		}
	}
	return fmt.Errorf("container %s: %w", id, pod.ErrNotFound)
}

func (r *runtime) write(t *testing.T, id string, size int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.open[id].Write(bytes.Repeat([]byte("0123456789abcde\n"), size/16)); err != nil {
		t.Fatal(err)
	}
}

// station is a Rotator in a bubble, with real files.
type station struct {
	*runtime
	dir string
	log bytes.Buffer
}

func (s *station) path(id string) string { return filepath.Join(s.dir, id, "0.log") }

func (s *station) run(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := os.MkdirAll(filepath.Dir(s.path(id)), 0o755); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.logs = append(s.logs, pod.ContainerLog{ID: id, Path: s.path(id)})
		err := s.openLocked(id)
		s.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// files are the names beside a container's log, and their sizes in all.
func (s *station) files(t *testing.T, id string) (names []string, size int64) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(s.path(id)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
	}
	return names, size
}

func inBubble(t *testing.T, cfg Config, test func(t *testing.T, s *station)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &station{dir: dir, runtime: &runtime{open: map[string]*os.File{}, hangs: map[string]chan struct{}{}}}
		cfg.Runtime, cfg.Interval = s.runtime, 10*time.Second
		cfg.Log = slog.New(slog.NewTextHandler(&s.log, nil))
		r := New(cfg)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		synctest.Wait()
		test(t, s)
		stop()
		<-ended
		for _, f := range s.open {
			f.Close()
		}
	})
}

func TestALogIsRotatedAsTheKubeletDoes(t *testing.T) {
	inBubble(t, Config{MaxSize: 1600, MaxFiles: 4}, func(t *testing.T, s *station) {
		s.run(t, "a", "quiet")
		s.write(t, "quiet", 160)
		for range 6 {
			s.write(t, "a", 1600)
			time.Sleep(20 * time.Second)
			synctest.Wait()
		}
		s.write(t, "a", 160)
		names, _ := s.files(t, "a")
		// The bubble begins on 2000-01-01 in UTC; stamps are in local time.
		stamp := func(after time.Duration) string {
			return "0.log." + time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(after).Local().Format(stampFormat)
		}
		want := []string{"0.log", stamp(70*time.Second) + ".gz", stamp(90*time.Second) + ".gz", stamp(110 * time.Second)}
		if !slices.Equal(names, want) {
			t.Errorf("got %v, want %v", names, want)
		}
		if text := unzip(t, filepath.Join(s.dir, "a", want[1])); len(text) != 1600 || !strings.HasSuffix(text, "abcde\n") {
			t.Errorf("compressed: got %d bytes back, want 1600", len(text))
		}
		if info, err := os.Stat(filepath.Join(s.dir, "a", want[1])); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("compressed: got mode %v (%v), want the log's", info.Mode(), err)
		}
		if names, _ := s.files(t, "quiet"); !slices.Equal(names, []string{"0.log"}) {
			t.Errorf("quiet: got %v", names)
		}
		if s.lists > 14 {
			t.Errorf("got %d lists in two minutes, want one each 10 s", s.lists)
		}
	})
}

func unzip(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAReaderThatFollowsLosesNoLine(t *testing.T) {
	inBubble(t, Config{MaxSize: 1600, MaxFiles: 3}, func(t *testing.T, s *station) {
		s.run(t, "a")
		reader, err := os.Open(s.path("a"))
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		s.write(t, "a", 1600)
		if err := os.Rename(s.path("a"), s.path("a")+".x"); err != nil { // between rename and reopen it is the same file
			t.Fatal(err)
		}
		s.write(t, "a", 160)
		if err := os.Rename(s.path("a")+".x", s.path("a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		s.write(t, "a", 320)
		old, err := io.ReadAll(reader)
		if err != nil || len(old) != 1760 {
			t.Errorf("the old file: got %d bytes (%v), want all 1760", len(old), err)
		}
		if now, _ := os.ReadFile(s.path("a")); len(now) != 320 {
			t.Errorf("the new file: got %d bytes, want 320", len(now))
		}
	})
}

func TestAFloodStaysBounded(t *testing.T) {
	inBubble(t, Config{MaxSize: 16000, MaxFiles: 3}, func(t *testing.T, s *station) {
		s.run(t, "a")
		var most int64
		for i := range 3000 { // five minutes; 16000 bytes a second, the limit in a second
			s.write(t, "a", 1600)
			time.Sleep(100 * time.Millisecond)
			if i > 150 {
				synctest.Wait()
				_, size := s.files(t, "a")
				most = max(most, size)
			}
		}
		// Three files of the limit and a second's writing, and one that is being
		// replaced; by interval alone it would be ten times as much.
		if most > 4*32000 {
			t.Errorf("got %d bytes at the most, want less than %d", most, 4*32000)
		}
		if s.log.Len() > 0 {
			t.Errorf("log: %s", &s.log)
		}
	})
}

func TestARenameIsTakenBackWhenTheRuntimeDoesNotOpenTheLog(t *testing.T) {
	inBubble(t, Config{MaxSize: 1600, MaxFiles: 3}, func(t *testing.T, s *station) {
		s.run(t, "a")
		s.mu.Lock()
		s.fails = errors.New("the shim is busy")
		s.mu.Unlock()
		s.write(t, "a", 1600)
		time.Sleep(time.Minute)
		synctest.Wait()
		names, size := s.files(t, "a")
		if !slices.Equal(names, []string{"0.log"}) || size != 1600 {
			t.Errorf("got %v with %d bytes, want the log as it was", names, size)
		}
		if n := strings.Count(s.log.String(), "the shim is busy"); n != 1 {
			t.Errorf("said %d times, want once:\n%s", n, &s.log)
		}
		s.mu.Lock()
		s.fails = nil
		s.mu.Unlock()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if names, _ := s.files(t, "a"); len(names) != 2 {
			t.Errorf("got %v, want it rotated", names)
		}
	})
}

func TestALogThatWasRemovedIsOpenedAnew(t *testing.T) {
	inBubble(t, Config{MaxSize: 1600, MaxFiles: 3}, func(t *testing.T, s *station) {
		s.run(t, "a")
		if err := os.Remove(s.path("a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		s.write(t, "a", 160)
		if names, size := s.files(t, "a"); !slices.Equal(names, []string{"0.log"}) || size != 160 {
			t.Errorf("got %v with %d bytes, want the log back", names, size)
		}
	})
}

// TestALogThatCannotBeCheckedWaitsForTheUsualTime: its early check stayed due, and
// Run came back to it at once, for ever, with all of a processor.
func TestALogThatCannotBeCheckedWaitsForTheUsualTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := New(Config{Runtime: &runtime{}, MaxSize: 1600, MaxFiles: 3, Interval: 10 * time.Second})
	w := &watched{log: pod.ContainerLog{ID: "a", Path: filepath.Join(file, "0.log")}, earlyCheckAt: time.Now()} // below what is no directory
	r.seen["a"] = w
	var running sync.WaitGroup
	r.checkDue(t.Context(), &running)
	running.Wait()
	if at := r.nextEarlyCheck(); !at.IsZero() || w.lastError == "" {
		t.Errorf("got another early look at %v (said %q), want none", at, w.lastError)
	}
}

func TestARuntimeThatHangsForOneContainerHoldsUpNoOther(t *testing.T) {
	inBubble(t, Config{MaxSize: 1600, MaxFiles: 3}, func(t *testing.T, s *station) {
		s.run(t, "hangs", "works")
		s.mu.Lock()
		s.hangs["hangs"] = make(chan struct{})
		s.mu.Unlock()
		s.write(t, "hangs", 1600)
		s.write(t, "works", 1600)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if names, _ := s.files(t, "works"); len(names) != 2 {
			t.Errorf("got %v, want it rotated", names)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if names, size := s.files(t, "hangs"); len(names) == 0 || size != 1600 {
			t.Errorf("got %v with %d bytes, want nothing lost", names, size)
		}
	})
}

func TestAContainerThatEndedIsForgotten(t *testing.T) {
	inBubble(t, Config{MaxSize: 1600, MaxFiles: 3}, func(t *testing.T, s *station) {
		s.run(t, "a")
		time.Sleep(11 * time.Second)
		s.write(t, "a", 1600)
		s.mu.Lock()
		s.logs = nil
		s.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if names, _ := s.files(t, "a"); !slices.Equal(names, []string{"0.log"}) {
			t.Errorf("got %v, want the log of the dead left alone", names)
		}
	})
}

func TestNoRotationWhenItIsOff(t *testing.T) {
	inBubble(t, Config{MaxSize: -1, MaxFiles: 3}, func(t *testing.T, s *station) {
		s.run(t, "a")
		s.write(t, "a", 1<<20)
		time.Sleep(time.Minute)
		if s.lists != 0 {
			t.Errorf("got %d lists, want none", s.lists)
		}
	})
}
