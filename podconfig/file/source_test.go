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
