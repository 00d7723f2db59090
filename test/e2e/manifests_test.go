package e2e

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
)

// badManifest is a file that podd cannot use.
type badManifest struct {
	file string
	// text is what it holds; put makes what is no regular file.
	text string
	put  func(path string) error
	// says is what people must be told: the field or the thing, and the remedy.
	says []string
}

// badManifests are all those there are.
func (e *env) badManifests() []badManifest {
	broken := func(name, old, text string) string { return replaced(e, e.resting(name), old, text) }
	return []badManifest{
		{file: "empty.yaml", says: []string{"is empty", "remove the file"}},
		{file: "binary.yaml", text: "\x7fELF\x00\x01\x02\xff\xfe\x00", says: []string{"binary", "save it as UTF-8 text"}},
		{file: "tabs.yaml", text: "apiVersion: v1\nkind: Pod\nmetadata:\n\tname: tabs\n", says: []string{"tabs.yaml:4", "tab", "use spaces"}},
		{file: "bomb.yaml", text: aliasBomb(), says: []string{"aliases", "write the values out"}},
		{file: "kind.yaml", text: "apiVersion: v1\nkind: Deployment\nmetadata: {name: kind}\n", says: []string{"kind", "Deployment", "spec.template as a Pod"}},
		{file: "version.yaml", text: broken("version", "apiVersion: v1", "apiVersion: v7"), says: []string{"apiVersion", "v7", "write apiVersion: v1"}},
		{file: "field.yaml", text: broken("field", "containers:", "contaniers:"), says: []string{"spec.contaniers", "did you mean", "containers"}},
		{file: "type.yaml", text: broken("type", "PeriodSeconds: 5", "PeriodSeconds: soon"), says: []string{"spec.terminationGracePeriodSeconds", "want an integer"}},
		{file: "badname.yaml", text: e.resting("Not_A_Name"), says: []string{"metadata.name", "for example", "not-a-name"}},
		{file: "longname.yaml", text: e.resting(strings.Repeat("x", 300)), says: []string{"metadata.name", "no more than 253 characters"}},
		{file: "half.yaml", text: e.resting("half")[:len(e.resting("half"))/2], says: []string{"half.yaml:10", "is the file complete"}},
		{file: "document.yaml", text: e.resting("among") + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: 7\n", says: []string{"spec", "want an object", "indented"}},
		{file: "fifo.yaml", put: func(path string) error { return unix.Mkfifo(path, 0o644) }, says: []string{"named pipe", "move it"}},
		{file: "directory.yaml", put: func(path string) error { return os.Mkdir(path, 0o755) }, says: []string{"directory", "into the manifest directory itself"}},
		{file: "dangling.yaml", put: func(path string) error { return os.Symlink("/no/where", path) }, says: []string{"symlink to /no/where", "create the target"}},
		{file: "loop.yaml", put: func(path string) error { return os.Symlink(path, path) }, says: []string{"is part of a loop", "remove it"}},
		{file: "huge.yaml", text: strings.Repeat("# fifty megabytes of comment\n", 50<<20/29), says: []string{"limit of 10 MiB", "split it"}},
	}
}

// TestEveryBadManifestIsNamedAndDelaysNobody: all of them at once, and a good
// one beside them. Each is named with file, field and remedy in `podd ps`, in
// the log and by the metric; the good pod starts in ten times what the runtime takes at most, podd lives
// and stays small, and a file that is mended is taken.
func TestEveryBadManifestIsNamedAndDelaysNobody(t *testing.T) {
	e := begin(t)
	bad := e.badManifests()
	for _, b := range bad {
		if b.put == nil {
			e.write(b.file, b.text)
		} else if err := b.put(filepath.Join(e.podd.Manifests(), b.file)); err != nil {
			t.Fatal(err)
		}
	}
	beside := e.started("good")
	e.atMost(fmt.Sprintf("beside %d bad manifests, the start of a pod", len(bad)), beside, 10)
	e.mark("among") // the good document of a file with a bad one
	e.write("twin1.yaml", e.resting("twin"))
	e.mark("twin")
	e.write("twin2.yaml", e.resting("twin"))
	bad = append(bad, badManifest{file: "twin2.yaml", says: []string{"metadata.name", "defined twice", "twin1.yaml", "remove one"}})

	for _, b := range bad {
		p := e.problem(b.file)
		if len(p.Message) > 3000 {
			t.Errorf("%s: the message has %d characters", b.file, len(p.Message))
		}
	}
	table, log := e.run("ps"), e.podd.LogTail(1<<20)
	for _, b := range bad {
		if !oneLineHolds(table, b.file, b.says) {
			t.Errorf("no line of podd ps holds %q and %q", b.file, b.says)
		}
		if !oneLineHolds(log, b.file, b.says) {
			t.Errorf("no line of podd's log holds %q and %q", b.file, b.says)
		}
	}
	if t.Failed() {
		t.Logf("podd ps:\n%.10000s", table)
	}
	e.metric(fmt.Sprintf("podd_manifest_problems{source=\"file\"} %d", len(bad)))
	if rss := e.residentMiB(); rss > 150 {
		t.Errorf("podd holds %d MiB after fifty megabytes and an alias bomb", rss)
	}
	for _, b := range bad {
		e.remove(b.file)
	}
	e.write("half.yaml", e.resting("half")) // completed
	e.mark("half")
	e.metric(`podd_manifest_problems{source="file"} 0`)
	e.ready("good")
}

// TestABOMAndCRLFAreNoProblem: what an editor of another system writes.
func TestABOMAndCRLFAreNoProblem(t *testing.T) {
	e := begin(t)
	e.write("crlf.yaml", "\ufeff"+strings.ReplaceAll(e.resting("crlf"), "\n", "\r\n"))
	e.mark("crlf")
	e.noProblem()
}

// TestBackupsAndHalfWrittenFilesAreNoPods (kubernetes/kubernetes#119135,
// kubernetes/website#45758, bottlerocket-os/bottlerocket#1396): the .bak beside
// a manifest became a second pod, and a file was read while it was written.
func TestBackupsAndHalfWrittenFilesAreNoPods(t *testing.T) {
	e := prepare(t)
	e.write("web.yaml.bak", e.resting("backup"))
	e.start()
	for _, name := range []string{".web.yaml.swp", "web.yaml~", "web.yaml.dpkg-old", "#web.yaml#"} {
		e.write(name, e.resting("backup"))
	}
	text := e.resting("slow")
	f, err := os.Create(filepath.Join(e.podd.Manifests(), "slow.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for part := range 4 {
		if _, err := f.WriteString(text[len(text)*part/4 : len(text)*(part+1)/4]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // a slow copy: that it takes time is the test
		e.noProblem()
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	e.mark("slow")
	e.noProblem()
	if e.marked("backup") {
		t.Error("a backup of a manifest runs")
	}
	if log := e.podd.LogTail(1 << 20); !strings.Contains(log, "web.yaml.bak") {
		t.Error("podd's log does not say that it leaves web.yaml.bak alone")
	}
}

// noProblem fails the test if podd reports a problem with a manifest now.
func (e *env) noProblem() {
	e.Helper()
	l, err := e.listing(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	for _, p := range l.Problems {
		e.Errorf("got a problem, want none: %s", p.String())
	}
}

// started drops the manifest of a pod and returns how long it took to its first
// instruction.
func (e *env) started(name string) time.Duration {
	e.Helper()
	at := e.write(name+".yaml", e.resting(name))
	return e.mark(name).Sub(at)
}

// metric waits until the metrics have this line.
func (e *env) metric(line string) {
	e.Helper()
	e.eventually("wait for metric "+line, func(ctx context.Context) error {
		body, err := e.podd.Get(ctx, "/metrics")
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(line, " ")
		for l := range strings.Lines(string(body)) {
			if strings.TrimSpace(l) == line {
				return nil
			}
			if strings.HasPrefix(l, name+" ") {
				return errors.New(l)
			}
		}
		return errors.New("it is not there")
	})
}

// oneLineHolds says whether some line has a file's name and all words.
func oneLineHolds(text, file string, words []string) bool {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "/"+file) && holdsAll(line, words) {
			return true
		}
	}
	return false
}

// residentMiB is podd's VmRSS.
func (e *env) residentMiB() int {
	e.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.podd.Pid()))
	if err != nil {
		e.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		e.Fatal(err)
	}
	return kib / 1024
}

// aliasBomb grows by nine with each of nine lines.
func aliasBomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), ", "))
	}
	return b.String()
}
