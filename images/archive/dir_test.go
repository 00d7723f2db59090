package archive

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distribution/reference"

	"podd/internal/pod"
	"podd/internal/wake"
)

// store is a fake image store: an archive's content is the name of its image,
// or says what is wrong.
type store struct {
	mu       sync.Mutex
	has      map[string]bool
	imported []string
	down     error
	// late is how many looks after its import an image is not shown yet.
	late int
	// poke is sent to after each import.
	poke wake.Signal
}

func newStore() *store { return &store{has: map[string]bool{}, poke: make(chan struct{}, 100)} }

func (s *store) Import(_ context.Context, file string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.poke <- struct{}{} }()
	s.imported = append(s.imported, filepath.Base(file))
	if s.down != nil {
		return nil, s.down
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.HasPrefix(string(text), "bad") {
		return nil, &InvalidError{File: file, Reason: "is no archive"}
	}
	s.has[string(text)] = true
	return []string{string(text)}, nil
}

func (s *store) ImageStatus(_ context.Context, ref string) (*pod.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	if !s.has[ref] {
		return nil, nil
	}
	if s.late > 0 {
		s.late--
		return nil, nil
	}
	return &pod.Image{ID: ref}, nil
}

func (s *store) files() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.imported)
}

// importing runs a Dir over dir until the test ends or stop is called.
func importing(t *testing.T, s *store, dir string) (d *Dir, stop func()) {
	t.Helper()
	d = New(Config{Dir: dir, StateFile: filepath.Join(dir, "../state.json"), Importer: s, Images: s})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return d, stop
}

func settled(t *testing.T, d *Dir) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.Wait(ctx); err != nil {
		t.Fatal("the image directory did not settle")
	}
}

func put(t *testing.T, dir, name, text string, age time.Duration) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	return path
}

func imageDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "images")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestArchivesAreImportedAtStartSmallestFirst(t *testing.T) {
	dir, s := imageDir(t), newStore()
	put(t, dir, "a.tar", "localhost/large:1", time.Minute)
	put(t, dir, "b.tar.zst", "local/s:1", time.Minute)
	put(t, dir, ".hidden.tar", "no", time.Minute)
	put(t, dir, "notes.txt", "no", time.Minute)
	if err := os.Mkdir(filepath.Join(dir, "folder.tar"), 0o755); err != nil {
		t.Fatal(err)
	}
	d, _ := importing(t, s, dir)
	settled(t, d)
	if got, want := s.files(), []string{"b.tar.zst", "a.tar"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRestartImportsNothingAgainUnlessTheRuntimeLostIt(t *testing.T) {
	dir, s := imageDir(t), newStore()
	path := put(t, dir, "a.tar", "localhost/a:1", time.Minute)
	d, stop := importing(t, s, dir)
	settled(t, d)
	stop()
	put(t, dir, "a.tar", "localhost/a:1", time.Second*30) // touched: the same content
	d, stop = importing(t, s, dir)
	settled(t, d)
	if got := s.files(); len(got) != 1 {
		t.Errorf("after a restart: imported %v, want it once", got)
	}
	s.mu.Lock()
	s.has = map[string]bool{}
	s.mu.Unlock()
	d.Recheck()
	<-s.poke
	<-s.poke
	settled(t, d)
	if got := s.files(); len(got) != 2 {
		t.Errorf("after the runtime lost it: imported %v, want it twice", got)
	}
	stop()
	if err := os.WriteFile(path, []byte("localhost/b:1"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, _ = importing(t, s, dir)
	<-s.poke
	settled(t, d)
	if !s.has["localhost/b:1"] {
		t.Error("new content was not imported")
	}
}

// TestAnImageThatIsMissedComesBack: it was removed while podd runs, and a pod
// needs it (containerd/containerd#10270).
func TestAnImageThatIsMissedComesBack(t *testing.T) {
	dir, s := imageDir(t), newStore()
	put(t, dir, "a.tar", "localhost/a:1", time.Minute)
	d, _ := importing(t, s, dir)
	settled(t, d)
	d.ReportMissing("localhost/other:1")
	settled(t, d)
	if got := s.files(); len(got) != 1 {
		t.Errorf("after another image was missed: imported %v, want it once", got)
	}
	s.mu.Lock()
	s.has = map[string]bool{}
	s.mu.Unlock()
	d.ReportMissing("localhost/a:1")
	settled(t, d) // as a pull does
	if got := s.files(); len(got) != 2 {
		t.Errorf("after it was missed: imported %v, want it twice", got)
	}
}

// TestAnImageIsReportedOnceTheRuntimeShowsIt: a pod that is woken for it looks for it, and
// had it imported a second time.
func TestAnImageIsReportedOnceTheRuntimeShowsIt(t *testing.T) {
	dir, s := imageDir(t), newStore()
	s.late = 3
	put(t, dir, "a.tar", "localhost/a:1", time.Minute)
	shown := make(chan bool, 2)
	var d *Dir
	d = New(Config{Dir: dir, StateFile: filepath.Join(dir, "../state.json"), Importer: s, Images: s, Imported: func(refs []string) {
		image, err := s.ImageStatus(t.Context(), refs[0])
		if image == nil {
			d.ReportMissing(refs[0])
		}
		shown <- image != nil && err == nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Run(ctx) }()
	settled(t, d)
	cancel()
	<-done
	if !<-shown {
		t.Error("the image is reported before the runtime shows it")
	}
	if got := s.files(); len(got) != 1 {
		t.Errorf("imported %v, want it once", got)
	}
}

func TestNewArchiveIsImportedWhenItIsComplete(t *testing.T) {
	dir, s := imageDir(t), newStore()
	d, _ := importing(t, s, dir)
	settled(t, d)

	f, err := os.Create(filepath.Join(dir, "slow.tar"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("localhost/sl"); err != nil {
		t.Fatal(err)
	}
	// Another file triggers a sync; the one being written must be left alone.
	put(t, dir, "x.new", "localhost/moved:1", 0)
	if err := os.Rename(filepath.Join(dir, "x.new"), filepath.Join(dir, "moved.tar")); err != nil {
		t.Fatal(err)
	}
	<-s.poke
	if got := s.files(); !slices.Equal(got, []string{"moved.tar"}) {
		t.Errorf("while it is being written: imported %v", got)
	}
	if _, err := f.WriteString("ow:1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	<-s.poke
	settled(t, d)
	if !s.has["localhost/slow:1"] {
		t.Errorf("imported %v, want the whole of slow.tar", s.files())
	}
}

func TestBadArchiveIsAProblemWithItsNameUntilItChanges(t *testing.T) {
	dir, s := imageDir(t), newStore()
	path := put(t, dir, "broken.tar", "bad", time.Minute)
	put(t, dir, "z.tar", "localhost/good-one:1", time.Minute)
	d, _ := importing(t, s, dir)
	settled(t, d)
	d.Recheck()
	settled(t, d)
	if got := d.Problems(); len(got) != 1 || got[0].Origin != path || !strings.Contains(got[0].Message, "broken.tar: is no archive") {
		t.Errorf("got %+v, want one problem that names the file", got)
	}
	if got := s.files(); !slices.Equal(got, []string{"broken.tar", "z.tar"}) {
		t.Errorf("imported %v, want each read once", got)
	}
	for len(s.poke) > 0 {
		<-s.poke
	}
	put(t, dir, "broken.tar", "localhost/mended:1", time.Minute)
	<-s.poke
	settled(t, d)
	if got := d.Problems(); len(got) != 0 {
		t.Errorf("after it was mended: got %+v", got)
	}
}

func TestRuntimeThatIsAwayIsNotTheArchivesFault(t *testing.T) {
	dir, s := imageDir(t), newStore()
	s.down = errors.New("containerd does not respond")
	put(t, dir, "a.tar", "localhost/a:1", time.Minute)
	d, _ := importing(t, s, dir)
	<-s.poke
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Wait(short); err == nil {
		t.Error("Wait returned although the archive is not imported")
	}
	s.mu.Lock()
	s.down = nil
	s.mu.Unlock()
	d.Recheck() // as when the runtime is back
	settled(t, d)
	if !s.has["localhost/a:1"] || len(d.Problems()) != 0 {
		t.Errorf("after it is back: %v, %v", s.has, d.Problems())
	}
}

// TestADirectoryThatCannotBeCreatedIsAProblemReportedOnce: a directory that could not be
// created once meant two log lines per second, and no problem to see.
func TestADirectoryThatCannotBeCreatedIsAProblemReportedOnce(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "images")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	d := New(Config{Dir: at, StateFile: filepath.Join(dir, "state.json"), Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		d.sync(t.Context())
	}
	if p := d.Problems(); len(p) != 1 || p[0].Origin != at || !strings.Contains(p[0].Message, "not a directory") {
		t.Errorf("problems: got %v", p)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("got %d lines of log:\n%s", n, log.String())
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if d.sync(t.Context()); len(d.Problems()) > 0 {
		t.Errorf("problems of a good directory: %v", d.Problems())
	}
}

func TestDirectoryThatIsReplacedIsWatchedAgain(t *testing.T) {
	dir, s := imageDir(t), newStore()
	d, _ := importing(t, s, dir)
	settled(t, d)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "a.tar", "localhost/a:1", time.Minute)
	select {
	case <-s.poke:
	case <-time.After(time.Minute):
		t.Fatal("an archive in the new directory was not noticed")
	}
}

// defaultRegistry returns the registry that a short name implies.
func defaultRegistry(t *testing.T) string {
	t.Helper()
	named, err := reference.ParseNormalizedNamed("busybox")
	if err != nil {
		t.Fatal(err)
	}
	return reference.Domain(named)
}

func TestNamesOfImages(t *testing.T) {
	for ref, want := range map[string]string{
		"busybox:1":              defaultRegistry(t) + "/library/busybox:1",
		"localhost/podd/web:1":   "localhost/podd/web:1",
		"registry.test/a/b":      "registry.test/a/b:latest",
		nameless + ":latest":     "", // containerd's name for a bare tag
		"registry.test/UPPER:1":  "",
		"registry.test:5000/a:2": "registry.test:5000/a:2",
	} {
		if got := fullName(ref); got != want {
			t.Errorf("%q: got %q, want %q", ref, got, want)
		}
	}
}

// TestAnArchiveHoldsUpPullsForSecondsOnly: nothing runs the Dir, as if one archive took
// long.
func TestAnArchiveHoldsUpPullsForSecondsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{Dir: t.TempDir()})
		began := time.Now()
		if err := d.WaitBriefly(t.Context()); err != nil || time.Since(began) != waitTimeout {
			t.Errorf("got %v after %v, want nil after %v", err, time.Since(began), waitTimeout)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := d.WaitBriefly(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context that ends before: got %v, want its error", err)
		}
	})
}
