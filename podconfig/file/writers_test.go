package file

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAHalfWrittenFileIsNotReadBeforeItIsClosed(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	text := podYAML("a", "i")
	f, err := os.Create(filepath.Join(st.dir, "a.yaml"))
	st.do(err)
	_, err = f.WriteString(text[:40])
	st.do(err)
	st.quiet(400 * time.Millisecond)
	_, err = f.WriteString(text[40:])
	st.do(err)
	st.do(f.Close())
	st.until("a=i")
}

// A rescan took the first documents of a manifest that was being rewritten for
// all of it, and the pods of the others were ended.
func TestAFileThatIsBeingRewrittenIsNotReadBeforeItIsClosed(t *testing.T) {
	a, b := podYAML("a", "i")+"---\n", podYAML("b", "i")
	for name, again := range map[string]func(st *fixture, path string) *os.File{
		"truncated": func(st *fixture, path string) *os.File {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			st.do(err)
			return f
		},
		"made anew": func(st *fixture, path string) *os.File {
			st.do(os.Remove(path))
			f, err := os.Create(path)
			st.do(err)
			return f
		},
	} {
		for kind, cfg := range map[string]func(dir string) string{
			"directory": func(dir string) string { return dir },
			"file":      func(dir string) string { return filepath.Join(dir, "all.yaml") },
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				dir := t.TempDir()
				(&fixture{t: t, dir: dir}).write("all.yaml", a+b)
				st := watch(t, Config{Path: cfg(dir), CheckFrequency: 50 * time.Millisecond})
				st.until("a=i b=i")
				f := again(st, filepath.Join(dir, "all.yaml"))
				_, err := f.WriteString(a)
				st.do(err)
				st.quiet(500 * time.Millisecond)
				_, err = f.WriteString(b)
				st.do(err)
				st.quiet(100 * time.Millisecond)
				st.do(f.Close())
				st.quiet(200 * time.Millisecond)
				if st.show() != "a=i b=i" {
					t.Errorf("got %q", st.show())
				}
				st.do(os.WriteFile(f.Name(), []byte(a), 0o644)) // it is still seen
				st.until("a=i")
			})
		}
	}
}

// A rescan that came between an editor's steps, before podd had read the events
// of them, ended pods.
func TestARescanAmongAnEditorsStepsEndsNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "all.yaml")
	s, st := New(Config{Path: dir, NodeName: "node1"}), &fixture{t: t, dir: dir}
	a, b := podYAML("a", "i")+"---\n", podYAML("b", "i")
	st.write("all.yaml", a+b)
	s.rescan(nil)
	w := newTestWatcher(t)
	for _, step := range []struct {
		name string
		do   func()
		then uint32
	}{
		{"written in part", func() { st.write("all.yaml", a) }, unix.IN_MODIFY},
		{"written", func() { st.write("all.yaml", a+b) }, unix.IN_CLOSE_WRITE},
		{"emptied", func() { st.write("all.yaml", "") }, unix.IN_MODIFY},
		{"moved away", func() { st.do(os.Rename(path, path+"~")) }, unix.IN_MOVED_FROM},
		{"moved back", func() { st.do(os.Rename(path+"~", path)); st.write("all.yaml", a+b) }, unix.IN_MOVED_TO},
	} {
		step.do()
		s.rescan(nil)
		s.applyEvents(w, []event{{wd: 1, mask: step.then, name: "all.yaml"}})
		s.rescan(nil)
		if e := s.entries["all.yaml"]; e == nil || len(e.Pods) != 2 || len(e.problems) > 0 {
			t.Fatalf("%s: got %+v, want both pods and no problem", step.name, e)
		}
	}
	if len(s.pending) > 0 {
		t.Errorf("got looks to come: %v", s.pending)
	}
}

// A writer that never closes its file does not hide it for ever.
func TestAModifiedFileThatStaysOpenIsReadOnceItsWriterRests(t *testing.T) {
	dir := t.TempDir()
	s, st := New(Config{Path: dir, NodeName: "node1"}), &fixture{t: t, dir: dir}
	st.write("all.yaml", podYAML("a", "i:1"))
	s.rescan(nil)
	st.write("all.yaml", podYAML("a", "i:2"))
	image := func() string { return s.entries["all.yaml"].Pods[0].Pod.Spec.Containers[0].Image }
	for range 3 { // each write begins the time anew
		began := time.Now()
		s.applyEvent(event{mask: unix.IN_MODIFY, name: "all.yaml"}, false)
		s.rescan(nil)
		s.runDueChecks(nil)
		if at := s.pending["all.yaml"].at; at.Before(began.Add(writeDelay)) || image() != "i:1" {
			t.Fatalf("got %s and a look in %v, want i:1 and one in %v", image(), at.Sub(began), writeDelay)
		}
	}
	s.pending["all.yaml"] = delayedCheck{at: time.Now()}
	s.runDueChecks(nil)
	if image() != "i:2" || len(s.pending) > 0 {
		t.Errorf("after the rest: got %s, %d looks to come", image(), len(s.pending))
	}
}

func TestACompleteFileIsReadThoughItStaysOpen(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	f, err := os.Create(filepath.Join(st.dir, "a.yaml"))
	st.do(err)
	defer f.Close()
	_, err = f.WriteString(podYAML("a", "i"))
	st.do(err)
	st.until("a=i")
}
