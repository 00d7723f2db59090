package file

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestASingleFileOfAnyName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "the-pod")
	st := watch(t, Config{Path: path})
	st.problem("does not exist")
	st.do(os.WriteFile(path, []byte(podYAML("a", "i:1")), 0o644))
	st.until("a=i:1")
	st.do(os.WriteFile(filepath.Join(dir, "other.yaml"), []byte(podYAML("b", "i")), 0o644))
	st.do(os.WriteFile(path+".tmp", []byte(podYAML("a", "i:2")), 0o644))
	st.do(os.Rename(path+".tmp", path))
	st.until("a=i:2")
	st.do(os.Remove(path))
	st.until("")
}

// A single manifest that podd could not look at for a moment was taken for an
// empty directory, and its pods were ended.
func TestASingleFileThatCannotBeReadKeepsItsPods(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.yaml"), filepath.Join(dir, "link")
	st := &fixture{t: t, dir: dir}
	st.write("real.yaml", podYAML("a", "i:1")+"---\n"+podYAML("b", "i:1"))
	st.do(os.Symlink("real.yaml", link))
	st = watch(t, Config{Path: link, CheckFrequency: 100 * time.Millisecond})
	st.until("a=i:1 b=i:1")
	st.do(os.Rename(real, real+".old"))
	st.next()
	if p := st.problem("this is a symlink to real.yaml, which does not exist"); st.show() != "a=i:1 b=i:1" || !p.LastGoodInUse {
		t.Errorf("got %q, %+v; want both pods kept running", st.show(), p)
	}
	st.quiet(500 * time.Millisecond)
	st.do(os.Rename(real+".old", real))
	st.next()
	if st.show() != "a=i:1 b=i:1" || len(st.last.Problems) > 0 {
		t.Errorf("the file is back: got %q, %v", st.show(), st.last.Problems)
	}
	st.do(os.Remove(link))
	if p := st.problem("does not exist"); !strings.Contains(p.Message, "the manifest file") {
		t.Errorf("got %+v, want it called a file", p)
	}
	st.until("")
	// Another kind of thing is another set.
	st.do(os.Mkdir(link, 0o755))
	st.do(os.WriteFile(filepath.Join(link, "c.yaml"), []byte(podYAML("c", "i:1")), 0o644))
	st.until("c=i:1")
	for len(st.last.Problems) > 0 {
		st.next()
	}
}

// newTestWatcher returns a watcher that takes 1 for the watch of its directory, and 2 for that
// of the parent.
func newTestWatcher(t *testing.T) *watcher {
	t.Helper()
	w, err := newWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.close() })
	w.dir, w.parent = 1, 2
	return w
}

// The sight of a single file that was away longer ago than it may be away must
// not count when it goes again.
func TestASingleFileMayBeAwayForAMomentMoreThanOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "the-pod")
	if err := os.WriteFile(path, []byte(podYAML("a", "i:1")), 0o644); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Path: path, NodeName: "node1"})
	s.rescan(nil)
	w := newTestWatcher(t)
	for range 2 {
		if !s.missingSince.IsZero() {
			s.missingSince = s.missingSince.Add(-time.Hour)
		}
		if err := os.Rename(path, path+"~"); err != nil {
			t.Fatal(err)
		}
		s.rescan(nil)
		if len(s.entries) != 1 || s.pathProblem == nil || !s.pathProblem.LastGoodInUse {
			t.Fatalf("away: got %d files, %+v; want the file kept", len(s.entries), s.pathProblem)
		}
		if err := os.Rename(path+"~", path); err != nil {
			t.Fatal(err)
		}
		s.applyEvents(w, []event{{wd: 1, mask: unix.IN_MOVED_TO, name: "the-pod"}})
		if s.pathProblem != nil {
			t.Fatalf("back: got %+v, want no problem", s.pathProblem)
		}
	}
}
