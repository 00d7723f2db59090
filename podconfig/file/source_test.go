package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podd/internal/perftest"
	"podd/podconfig"
	"podd/podconfig/manifest"
)

func TestFilesComeChangeAndGo(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	st.until("")
	st.write("a.yaml", podYAML("a", "i:1"))
	st.until("a=i:1")
	st.moveIn("b.yml", podYAML("b", "i:1"))
	st.until("a=i:1 b=i:1")
	st.moveIn("a.yaml", podYAML("a", "i:2"))
	st.until("a=i:2 b=i:1")
	st.do(os.Remove(filepath.Join(st.dir, "a.yaml")))
	st.until("b=i:1")
	st.do(os.Rename(filepath.Join(st.dir, "b.yml"), filepath.Join(t.TempDir(), "b.yml")))
	st.until("")
}

func TestAFileThatIsThereAtTheStartIsInTheFirstSnapshot(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.json"), []byte(podYAML("a", "i")), 0o644); err != nil {
		t.Fatal(err)
	}
	st := watch(t, Config{Path: dir})
	if got := st.show(); got != "a=i" {
		t.Errorf("got %q, want a=i", got)
	}
}

// Backups of editors became second pods, and half-written files were parsed.
func TestOnlyManifestsCount(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	for _, name := range []string{"a.yaml.bak", "a.yaml~", ".a.yaml", ".a.yaml.swp", "a.txt", "4913", "#a.yaml#"} {
		st.write(name, podYAML("a", "i"))
	}
	st.do(os.Mkdir(filepath.Join(st.dir, "sub"), 0o755))
	st.do(os.WriteFile(filepath.Join(st.dir, "sub", "a.yaml"), []byte(podYAML("sub", "i")), 0o644))
	st.write("b.yaml", podYAML("b", "i"))
	st.until("b=i")
	if len(st.last.Problems) > 0 {
		t.Errorf("problems: got %v, want none", st.last.Problems)
	}
}

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

func TestABrokenFileKeepsItsLastGoodVersion(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	st.write("a.yaml", podYAML("a", "i:1"))
	st.until("a=i:1")
	before := st.last.Pods[0]
	for _, broken := range []string{"", "spec: {", "\x00\x01", podYAML("a", "i:2") + "  bogus: 1\n", podYAML("other", "i:2") + "  bogus: 1\n", "# kind: Pod\n"} {
		st.write("a.yaml", broken)
		st.next()
		if st.show() != "a=i:1" || st.last.Pods[0] != before || len(st.last.Problems) == 0 || !st.last.Problems[0].LastGoodInUse {
			t.Errorf("after %q: got %q, problems %+v; want the last good pod and a problem that says so", broken, st.show(), st.last.Problems)
		}
	}
	st.write("a.yaml", podYAML("a", "i:3"))
	st.until("a=i:3")
	st.do(os.Remove(filepath.Join(st.dir, "a.yaml")))
	st.until("")
	if len(st.last.Problems) > 0 {
		t.Errorf("problems: got %v, want none", st.last.Problems)
	}
}

func TestOneBadDocumentAmongGoodOnes(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	three := func(a, b, c string) string { return a + "---\n" + b + "---\n" + c }
	st.write("x.yaml", three(podYAML("a", "i:1"), podYAML("b", "i:1"), podYAML("c", "i:1")))
	st.until("a=i:1 b=i:1 c=i:1")
	// The broken document says which pod it is: only that one stays as it was.
	st.write("x.yaml", three(podYAML("a", "i:2"), podYAML("b", "i:2")+"  bogus: 1\n", ""))
	st.until("a=i:2 b=i:1")
	// It does not: nothing that the file had is lost.
	st.write("x.yaml", three(podYAML("a", "i:3"), "kind: {\n", ""))
	st.until("a=i:3 b=i:1")
	// It was not there: the good ones run.
	st.write("y.yaml", three(podYAML("d", "i"), "kind: {\n", podYAML("e", "i")))
	st.until("a=i:3 b=i:1 d=i e=i")
	st.write("x.yaml", podYAML("a", "i:3"))
	st.until("a=i:3 d=i e=i")
}

// kubernetes/kubernetes#104648: such a pod never came back.
func TestTheSameFileDeletedAndWrittenAgain(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	st.write("a.yaml", podYAML("a", "i"))
	st.until("a=i")
	uid := st.last.Pods[0].UID()
	path := filepath.Join(st.dir, "a.yaml")
	st.do(os.Remove(path))
	st.until("")
	st.write("a.yaml", podYAML("a", "i"))
	st.until("a=i")
	if st.last.Pods[0].UID() != uid {
		t.Error("the same manifest got another UID")
	}
	st.swiftly(func() {
		st.do(os.Remove(path))
		st.write("a.yaml", podYAML("a", "i"))
	})
	st.quiet(300 * time.Millisecond)
}

// Upstream's node suite: "should successfully recreate when file is removed and recreated".
func TestADeletionThatCountsAtOnceEndsThePodsOfAFileThatIsBack(t *testing.T) {
	for kind, path := range map[string]func(dir string) string{
		"directory": func(dir string) string { return dir },
		"file":      func(dir string) string { return filepath.Join(dir, "a.yaml") },
	} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			(&fixture{t: t, dir: dir}).write("a.yaml", podYAML("a", "i"))
			st := watch(t, Config{Path: path(dir), DeleteImmediately: true})
			st.dir = dir
			st.until("a=i")
			uid := st.last.Pods[0].UID()
			for range 20 {
				st.do(os.Remove(filepath.Join(dir, "a.yaml")))
				st.write("a.yaml", podYAML("a", "i"))
				if st.next(); st.show() != "" {
					t.Fatalf("after the deletion: got %q, want nothing first", st.show())
				}
				st.until("a=i")
				if st.last.Pods[0].UID() != uid {
					t.Fatal("the same manifest got another UID")
				}
			}
			st.moveIn("a.yaml", podYAML("a", "i")) // replaced, not deleted
			st.quiet(100 * time.Millisecond)
		})
	}
}

func TestEditorsReplaceFilesWithoutStoppingThePod(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	path := filepath.Join(st.dir, "a.yaml")
	st.write("a.yaml", podYAML("a", "i"))
	st.until("a=i")
	// vim: probe file, rename to a backup, write anew, remove the backup.
	st.swiftly(func() {
		st.write("4913", "")
		st.do(os.Remove(filepath.Join(st.dir, "4913")))
		st.do(os.Rename(path, path+"~"))
		st.write("a.yaml", podYAML("a", "i"))
		st.do(os.Remove(path + "~"))
	})
	// sed -i and others: rename over; touch; chmod.
	st.moveIn("a.yaml", podYAML("a", "i"))
	st.do(os.Chtimes(path, time.Now(), time.Now()))
	st.do(os.Chmod(path, 0o600))
	st.quiet(300 * time.Millisecond)
	// A vim that saves something broken loses nothing either.
	st.do(os.Rename(path, path+"~"))
	st.write("a.yaml", "kind: [")
	st.do(os.Remove(path + "~"))
	st.problem("bracket")
	if st.show() != "a=i" {
		t.Errorf("got %q, want the last good version", st.show())
	}
}

func TestARenamedManifestMovesAtOnce(t *testing.T) {
	st := watch(t, Config{Path: t.TempDir()})
	st.write("a.yaml", podYAML("a", "i"))
	st.until("a=i")
	st.do(os.Rename(filepath.Join(st.dir, "a.yaml"), filepath.Join(st.dir, "b.yaml")))
	st.next()
	if st.show() != "a=i" || filepath.Base(st.last.Pods[0].Origin) != "b.yaml" {
		t.Errorf("got %q of %v", st.show(), st.last.Pods)
	}
}

func TestWhatIsNoFileIsAProblemAndBlocksNobody(t *testing.T) {
	dir := t.TempDir()
	st := watch(t, Config{Path: dir})
	join := func(name string) string { return filepath.Join(dir, name) }
	st.do(unix.Mkfifo(join("fifo.yaml"), 0o644))
	st.problem("fifo.yaml: this is a named pipe")
	st.do(os.Mkdir(join("dir.yaml"), 0o755))
	st.problem("dir.yaml: this is a directory")
	st.do(os.Symlink("nowhere.yaml", join("dangling.yaml")))
	st.problem("dangling.yaml: this is a symlink to nowhere.yaml, which does not exist")
	st.do(os.Symlink("loop.yaml", join("loop.yaml")))
	st.problem("loop.yaml: this symlink is part of a loop")
	st.do(os.Symlink("/dev/zero", join("device.yaml")))
	st.problem("device.yaml: this is a device")
	big, err := os.Create(join("big.yaml"))
	st.do(err)
	st.do(big.Truncate(50_000_000))
	st.do(big.Close())
	st.problem("big.yaml: the manifest is 47.7 MiB")
	st.write("empty.yaml", "")
	st.problem("empty.yaml: the file is empty")
	st.write("binary.yaml", "\x7fELF\x00")
	st.problem("binary.yaml: the file is binary")
	st.write("good.yaml", podYAML("good", "i"))
	st.until("good=i")
	for _, name := range []string{"fifo.yaml", "dir.yaml", "dangling.yaml", "loop.yaml", "device.yaml", "big.yaml", "empty.yaml", "binary.yaml"} {
		st.do(os.Remove(join(name)))
	}
	for len(st.last.Problems) > 0 {
		st.next()
	}
}

func TestNoPermission(t *testing.T) {
	u := explain("x", &os.PathError{Op: "open", Path: "x", Err: unix.EACCES})
	if !strings.Contains(u.Message, "permission denied") || u.Hint == "" {
		t.Errorf("got %+v", u)
	}
	if os.Getuid() == 0 {
		t.Log("root may read everything: only the sentence was tested")
		return
	}
	st := watch(t, Config{Path: t.TempDir()})
	st.do(os.WriteFile(filepath.Join(st.dir, "a.yaml"), nil, 0))
	st.problem("permission denied")
}

func TestADirectoryThatIsMissingAppearsLater(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "etc", "podd", "manifests")
	st := watch(t, Config{Path: dir})
	if st.show() != "" {
		t.Errorf("got %q, want a complete, empty set", st.show())
	}
	st.problem("the manifest directory does not exist")
	st.do(os.MkdirAll(dir, 0o755))
	for len(st.last.Problems) > 0 {
		st.next()
	}
	st.write("a.yaml", podYAML("a", "i"))
	st.until("a=i")
}

// A directory that was made between podd's look for it and its watch on the one
// above was seen at the next rescan only.
func TestADirectoryThatAppearsDuringTheSearchIsFound(t *testing.T) {
	for i := range 100 {
		top := t.TempDir()
		dir := filepath.Join(top, "a", "b", "c", "d")
		made := make(chan error, 1)
		go func() {
			time.Sleep(time.Duration(i) * 5 * time.Microsecond) // another moment of the look each time
			made <- os.MkdirAll(dir, 0o755)
		}()
		st := watch(t, Config{Path: dir})
		st.do(<-made)
		for len(st.last.Problems) > 0 {
			st.next()
		}
		st.write("a.yaml", podYAML("a", "i"))
		st.until("a=i")
		st.end()
	}
}

func TestADirectoryReplacedByRenameStopsNothing(t *testing.T) {
	top := t.TempDir()
	dir, other := filepath.Join(top, "m"), filepath.Join(top, "new")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(other, 0o755)); err != nil {
		t.Fatal(err)
	}
	st := watch(t, Config{Path: dir})
	st.write("a.yaml", podYAML("a", "i"))
	st.until("a=i")
	st.do(os.WriteFile(filepath.Join(other, "a.yaml"), []byte(podYAML("a", "i")), 0o644))
	st.do(os.WriteFile(filepath.Join(other, "b.yaml"), []byte(podYAML("b", "i")), 0o644))
	began := time.Now()
	st.do(os.Rename(dir, filepath.Join(top, "old")))
	if p := st.problem("the manifest directory does not exist"); !p.LastGoodInUse || st.show() != "a=i" {
		t.Fatalf("got %+v and the pods %q, want the pod kept while the directory is away", p, st.show())
	}
	st.do(os.Rename(other, dir))
	swift := time.Since(began) < dirGoneDelay // else podd rightly takes the directory for gone
	for st.show() != "a=i b=i" {
		if swift && st.show() != "a=i" {
			t.Fatalf("got %q: a pod was stopped while its directory was replaced", st.show())
		}
		st.next()
	}
	st.write("c.yaml", podYAML("c", "i"))
	st.until("a=i b=i c=i")
	st.do(os.RemoveAll(dir))
	st.until("")
}

func TestASymlinkedDirectory(t *testing.T) {
	top := t.TempDir()
	link := filepath.Join(top, "m")
	for _, version := range []string{"1", "2"} {
		real := filepath.Join(top, "v"+version)
		if err := errors.Join(os.Mkdir(real, 0o755), os.WriteFile(filepath.Join(real, "a.yaml"), []byte(podYAML("a", "i:"+version)), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("v1", link); err != nil {
		t.Fatal(err)
	}
	st := watch(t, Config{Path: link})
	st.until("a=i:1")
	st.do(os.Symlink("v2", link+".new"))
	st.do(os.Rename(link+".new", link))
	st.until("a=i:2")
	st.write("b.yaml", podYAML("b", "i"))
	st.until("a=i:2 b=i")
}

// As the kubelet mounts a ConfigMap: names link into ..data, which is swapped.
func TestAConfigMapMount(t *testing.T) {
	dir := t.TempDir()
	version := func(n string) {
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "..v"+n), 0o755),
			os.WriteFile(filepath.Join(dir, "..v"+n, "a.yaml"), []byte(podYAML("a", "i:"+n)), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	version("1")
	version("2")
	if err := errors.Join(os.Symlink("..v1", filepath.Join(dir, "..data")), os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml"))); err != nil {
		t.Fatal(err)
	}
	st := watch(t, Config{Path: dir})
	st.until("a=i:1")
	st.do(os.Symlink("..v2", filepath.Join(dir, "..data_tmp")))
	st.do(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	st.until("a=i:2")
}

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

func TestTheRescanIsTheNet(t *testing.T) {
	dir := t.TempDir()
	s := New(Config{Path: dir, NodeName: "node1", CheckFrequency: 20 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	out := make(chan podconfig.Snapshot)
	ended := make(chan error, 1)
	s.cfg.CheckFrequency = 20 * time.Millisecond
	go func() { ended <- s.loop(ctx, out, nil, nil, nil) }()
	st := &fixture{t: t, dir: dir, out: out}
	st.next()
	st.write("a.yaml", podYAML("a", "i:1"))
	st.until("a=i:1")
	st.write("a.yaml", podYAML("a", "i:2")) // same size, maybe the same tick of the clock
	st.until("a=i:2")
	st.do(os.Remove(filepath.Join(dir, "a.yaml")))
	st.until("")
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestTheLastGoodVersionSurvivesARestartOfPodd(t *testing.T) {
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "manifests")
	t.Run("before", func(t *testing.T) {
		st := watch(t, Config{Path: dir, StateDir: state})
		st.write("a.yaml", podYAML("a", "i:1"))
		st.write("b.yaml", podYAML("b", "i:1"))
		st.until("a=i:1 b=i:1")
		st.write("c.yaml", podYAML("c", "i:1"))
		st.until("a=i:1 b=i:1 c=i:1")
	})
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("broken: ["), 0o644), os.Remove(filepath.Join(dir, "b.yaml"))); err != nil {
		t.Fatal(err)
	}
	st := watch(t, Config{Path: dir, StateDir: state})
	st.until("a=i:1 c=i:1")
	if p := st.problem("bracket"); !p.LastGoodInUse {
		t.Errorf("got %+v, want LastGoodInUse", p)
	}
	st.do(os.Remove(filepath.Join(dir, "a.yaml")))
	st.until("c=i:1")
	left, err := os.ReadDir(state)
	if err != nil || len(left) != 1 {
		t.Errorf("state directory: got %v, %v, want the one of c.yaml", left, err)
	}
}

// TestAFileMoreCostsLittleMoreInALargeDirectory measures from the rename to the
// snapshot, among 300 manifests and, by turns, in an empty directory. Reading all
// of them again would cost some fifty times as much.
func TestAFileMoreCostsLittleMoreInALargeDirectory(t *testing.T) {
	const many, more = 300, 30
	large, small := t.TempDir(), t.TempDir()
	for i := range many {
		(&fixture{t: t, dir: large}).write(fmt.Sprintf("p%03d.yaml", i), podYAML(fmt.Sprintf("p%03d", i), "i"))
	}
	full, empty := watch(t, Config{Path: large}), watch(t, Config{Path: small})
	if len(full.last.Pods) != many {
		t.Fatalf("got %d pods, want %d", len(full.last.Pods), many)
	}
	one := func(st *fixture) func() time.Duration {
		return func() time.Duration {
			n := len(st.last.Pods)
			tmp, name := filepath.Join(st.dir, ".tmp"), fmt.Sprintf("q%03d", n)
			st.do(os.WriteFile(tmp, []byte(podYAML(name, "i")), 0o644))
			began := time.Now()
			st.do(os.Rename(tmp, filepath.Join(st.dir, name+".yaml")))
			st.next()
			took := time.Since(began)
			if len(st.last.Pods) != n+1 {
				t.Fatalf("got %d pods, want %d", len(st.last.Pods), n+1)
			}
			st.do(os.Remove(filepath.Join(st.dir, name+".yaml")))
			st.next()
			return took
		}
	}
	got := perftest.Compare(more, 10, one(full), one(empty))
	t.Logf("a file more among %d: %v", many, got)
	if r := got.Ratio(); r > 10 {
		t.Errorf("a file more among %d takes %.1f times what it takes alone", many, r)
	}
}

// A save that is cut short between two JSON objects took the second pod away: the
// rest was read as YAML, of which the first document was there.
func TestASaveThatIsCutShortTakesNoPodAway(t *testing.T) {
	object := func(name, image string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}` + "\n"
	}
	dir := t.TempDir()
	st := watch(t, Config{Path: dir})
	st.moveIn("a.json", object("a", "i:1")+object("b", "i:1"))
	st.until("a=i:1 b=i:1")
	whole := object("a", "i:2") + object("b", "i:2")
	for _, cut := range []int{len(whole)/2 + 9, len(whole) - 3} {
		st.moveIn("a.json", whole[:cut])
		st.until("a=i:2 b=i:1")
		if p := st.problem("a.json"); !p.LastGoodInUse {
			t.Errorf("got %v, want that it keeps running", p)
		}
		st.moveIn("a.json", object("a", "i:1")+object("b", "i:1"))
		st.until("a=i:1 b=i:1")
	}
	st.moveIn("a.json", whole)
	st.until("a=i:2 b=i:2")
}

// TestObjectsThatDoNotFitTogetherAreRefusedByTheFile, and taken when there is room.
func TestObjectsThatDoNotFitTogetherAreRefusedByTheFile(t *testing.T) {
	s := New(Config{Path: t.TempDir()})
	s.entries["m.yaml"] = &entry{size: contentSize{objects: 200, bytes: manifest.MaxObjectBytes - 1<<19}}
	text := []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: " + strings.Repeat("x", 1<<20-1) + "}\n")
	s.applyContent("a.yaml", text, &entry{readAt: time.Now()}, false)
	e := s.entries["a.yaml"]
	const want = "have 1.0 MiB, but with those of the other files only 0.5 MiB more are allowed (128 MiB for all files)"
	if len(e.Objects) > 0 || len(e.problems) != 1 || !strings.Contains(e.problems[0].Message, want) || s.fitsNow("a.yaml", e) {
		t.Errorf("got %d objects, problems %v, want %q", len(e.Objects), e.problems, want)
	}
	s.entries["m.yaml"] = &entry{}
	if !s.fitsNow("a.yaml", e) {
		t.Error("there is room, and it is not noticed")
	}
	s.applyContent("a.yaml", text, &entry{readAt: time.Now()}, false)
	if e := s.entries["a.yaml"]; len(e.Objects) != 1 || len(e.problems) > 0 || e.size != (contentSize{objects: 1, bytes: 1 << 20}) {
		t.Errorf("got %d objects, problems %v, %+v", len(e.Objects), e.problems, e.size)
	}
}

// TestAFileTooManyTakesNoOthersPlace has a directory with nearly as many pods as a
// source may have, and a file that would have more of them.
func TestAFileTooManyTakesNoOthersPlace(t *testing.T) {
	var most strings.Builder
	for i := range manifest.MaxPods - 1 {
		fmt.Fprintf(&most, "---\n%s", podYAML(fmt.Sprintf("m%d", i), "i"))
	}
	st := watch(t, Config{Path: t.TempDir(), CheckFrequency: 100 * time.Millisecond})
	count := func(want int) {
		t.Helper()
		for len(st.last.Pods) != want {
			st.next()
		}
	}
	st.moveIn("m.yaml", most.String())
	count(manifest.MaxPods - 1)
	st.moveIn("a.manifest", podYAML("a", "i:1"))
	count(manifest.MaxPods)
	st.moveIn("a.manifest", podYAML("a", "i:2")+"---\n"+podYAML("b", "i"))
	if p := st.problem("only 1 more are allowed"); !p.LastGoodInUse || len(st.last.Pods) != manifest.MaxPods {
		t.Errorf("got %v and %d pods, want the last good version kept", p, len(st.last.Pods))
	}
	st.moveIn("m.yaml", podYAML("m", "i"))
	st.until("a=i:2 b=i m=i")
	if len(st.last.Problems) > 0 {
		t.Errorf("got %v, want no problem once there is room", st.last.Problems)
	}
}
