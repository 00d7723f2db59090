package e2e

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// logDir is where the logs of a pod's container are.
func (e *env) logDir(p *corev1.Pod, container string) string {
	return filepath.Join(e.podd.PodLogs(), p.Namespace+"_"+p.Name+"_"+string(p.UID), container)
}

// logFiles are the names beside a log, oldest first, the live one last, and
// their sizes in all.
func logFiles(dir string) (names []string, size int64) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			size += info.Size()
			if entry.Name() != "0.log" {
				names = append(names, entry.Name())
			}
		}
	}
	return append(names, "0.log"), size
}

// TestALogIsRotatedWithoutLosingALine: the container writes numbered lines at
// such a pace that no file is removed; together they have each number once, and so has
// what podd logs -f prints (kubernetes/kubernetes#115701: it stopped at a rotation).
func TestALogIsRotatedWithoutLosingALine(t *testing.T) {
	e := prepare(t)
	e.podd.Config["containerLogMaxSize"] = "64Ki"
	e.podd.Config["containerLogMaxFiles"] = 50
	e.podd.Config["containerLogMonitorInterval"] = "3s"
	e.start()
	const lines = 3000
	e.write("counter.yaml", e.podOf("counter", fmt.Sprintf(
		"i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i of a log that is rotated while it is written; [ $((i%%30)) -gt 0 ] || sleep 0.07; done; : > /out/counted; ${REST}", lines)))
	p := e.ready("counter")
	dir := e.logDir(p, "main")
	printed, _ := e.background("logs", "-f", "counter")
	// Somebody follows the first file.
	var follower *os.File
	e.eventually("the log is there", func(context.Context) (err error) {
		follower, err = os.Open(filepath.Join(dir, "0.log"))
		return err
	})
	defer func() { _ = follower.Close() }()
	e.mark("counted")
	e.eventually("older files are compressed", func(context.Context) error {
		names, _ := logFiles(dir)
		if len(names) < 3 {
			return fmt.Errorf("got %v, want it rotated twice", names)
		}
		for _, name := range names[:len(names)-2] {
			if !strings.HasSuffix(name, ".gz") {
				return fmt.Errorf("got %v, want all but the newest compressed", names)
			}
		}
		return nil
	})
	names, _ := logFiles(dir)
	var all strings.Builder
	for i, name := range names {
		text := readLog(t, filepath.Join(dir, name))
		if i == 0 {
			read, err := io.ReadAll(follower)
			if err != nil || string(read) != text {
				t.Errorf("the follower read %d bytes (%v), the rotated file has %d", len(read), err, len(text))
			}
		}
		all.WriteString(text)
	}
	each := func(text, begin string) {
		t.Helper()
		n := 0
		for line := range strings.Lines(text) {
			n++
			if want := fmt.Sprintf("%sline %d of a log", begin, n); !strings.Contains(line, want) {
				t.Fatalf("line %d: got %q", n, line)
			}
		}
		if n != lines {
			t.Errorf("got %d lines, want %d", n, lines)
		}
	}
	each(all.String(), "stdout F ")
	e.has("podd logs -f goes on to the last line", printed, fmt.Sprintf("line %d of a log", lines))
	each(printed.String(), "")
	e.counted(`podd_container_log_rotations_total{result="ok"} `)
}

func readLog(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAPodThatFloodsItsLogStaysBounded and its log is there to be read.
func TestAPodThatFloodsItsLogStaysBounded(t *testing.T) {
	e := prepare(t)
	e.podd.Config["containerLogMaxSize"] = "1Mi"
	e.podd.Config["containerLogMaxFiles"] = 3
	e.podd.Config["containerLogMonitorInterval"] = "3s"
	e.start()
	e.write("flood.yaml", e.podOf("flood", "yes a line of a flood that nobody reads"))
	p := e.ready("flood")
	dir := e.logDir(p, "main")
	// The first seconds are unseen; after that it is rotated each second.
	e.eventually("it is rotated", func(context.Context) error {
		if names, _ := logFiles(dir); len(names) < 3 {
			return fmt.Errorf("got %v", names)
		}
		return nil
	})
	var most int64
	began, before := time.Now(), rotatedBytes(dir)
	for time.Since(began) < 4*time.Second {
		_, size := logFiles(dir)
		most = max(most, size)
		time.Sleep(50 * time.Millisecond)
	}
	names, _ := logFiles(dir)
	if len(names) > 4 { // one may be on its way out
		t.Errorf("got %v, want 3 files", names)
	}
	t.Logf("at most %d MiB in %d files; at first %d MiB", most>>20, len(names), before>>20)
	if most > 1<<30 {
		t.Errorf("got %d MiB of logs", most>>20)
	}
}

func rotatedBytes(dir string) int64 { _, size := logFiles(dir); return size }

// TestALogThatSomebodyRemovedIsWrittenAgain: otherwise it fills the disk unseen.
func TestALogThatSomebodyRemovedIsWrittenAgain(t *testing.T) {
	e := prepare(t)
	e.podd.Config["containerLogMonitorInterval"] = "3s"
	e.start()
	e.write("talker.yaml", e.podOf("talker", "trap 'exit 0' TERM; while :; do echo hello; sleep 0.2; done"))
	p := e.ready("talker")
	log := filepath.Join(e.logDir(p, "main"), "0.log")
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	e.eventually("the log is back", func(context.Context) error {
		text, err := os.ReadFile(log)
		if err == nil && len(text) == 0 {
			return errors.New("it is empty")
		}
		return err
	})
}

func TestLogsOfSomeContainersAndSinceAWhile(t *testing.T) {
	e := begin(t)
	two := func(name string) string {
		side := "  - name: side\n    image: ${IMAGE}\n    command: [/bin/sh, -c, \"echo aside; : > /out/" + name + "-side; ${REST}\"]\n    volumeMounts: [{name: out, mountPath: /out}]\n"
		return replaced(e, e.podOf(name, "echo one; echo two; : > /out/"+name+"; ${REST}"), "  volumes:\n", e.vars().Replace(side)+"  volumes:\n")
	}
	e.write("web.yaml", two("web"))
	e.write("other.yaml", replaced(e, two("other"), "metadata:\n", "metadata:\n  annotations: {kubectl.kubernetes.io/default-container: side}\n"))
	e.mark("web", "web-side", "other", "other-side")
	web, other := "web-"+e.podd.NodeName(), "other-"+e.podd.NodeName()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"web"}, "one\ntwo\n"},
		{[]string{"web", "-c", "side"}, "aside\n"},
		{[]string{"other"}, "aside\n"},
		{[]string{"web", "--all-containers"}, "one\ntwo\naside\n"},
		{[]string{"web", "other", "--all-containers", "--prefix", "--tail=1"},
			fmt.Sprintf("[pod/%s/main] two\n[pod/%[1]s/side] aside\n[pod/%s/main] two\n[pod/%[2]s/side] aside\n", web, other)},
		{[]string{"web", "-n", "default", "--since=1h"}, "one\ntwo\n"},
		{[]string{"web", "--since-time=2020-01-01T00:00:00Z", "--limit-bytes=5"}, "one\nt"},
		{[]string{"web", "--since-time=2120-01-01T00:00:00Z"}, ""},
	} {
		e.eventually(fmt.Sprintf("podd logs %q is what was said", c.args), func(context.Context) error {
			if got, err := e.prints("logs", c.args...); err != nil || got != c.want {
				return fmt.Errorf("got %q, %w, want %q", got, err, c.want)
			}
			return nil
		})
	}
	e.eventually("what was said is more than a second ago", func(context.Context) error {
		if got, err := e.prints("logs", "web", "--since=1s"); err != nil || got != "" {
			return fmt.Errorf("got %q, %w", got, err)
		}
		return nil
	})
	stamped, err := e.prints("logs", "web", "--timestamps", "--tail=1")
	stamp, rest, _ := strings.Cut(stamped, " ")
	if at, wrong := time.Parse(time.RFC3339Nano, stamp); err != nil || wrong != nil || time.Since(at) > time.Hour || rest != "two\n" {
		t.Errorf("--timestamps: got %q, %v, %v", stamped, err, wrong)
	}
	// A line that the runtime split is one: of the last one, and not its last part.
	e.write("long.yaml", e.podOf("long", "echo before; yes 1 | head -n 25000 | tr -d '\\n'; echo; : > /out/long; ${REST}"))
	e.mark("long")
	long := strings.Repeat("1", 25000) + "\n"
	e.eventually("the last line is whole", func(context.Context) error {
		if got, err := e.prints("logs", "long", "--tail=1"); err != nil || got != long {
			return fmt.Errorf("got %d bytes, %w", len(got), err)
		}
		return nil
	})
	stamped, err = e.prints("logs", "long", "--tail=1", "--timestamps")
	if _, rest, _ := strings.Cut(stamped, " "); err != nil || rest != long {
		t.Errorf("--timestamps: got %d bytes, %v", len(stamped), err)
	}
	if out, err := e.command(t.Context(), "logs", "web").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), `Defaulted container "main" out of: main, side`) {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := e.prints("logs", "-f", "web", "other", "--all-containers", "--max-log-requests=3"); err == nil || !strings.Contains(err.Error(), "follow 4 log streams, but maximum allowed concurrency is 3") {
		t.Errorf("got %v", err)
	}
	if _, err := e.prints("logs", "web", "-n", "elsewhere"); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("got %v", err)
	}
	follow, ended := e.background("logs", "-f", "web", "other", "--all-containers", "--prefix")
	for _, line := range []string{web + "/main] two\n", web + "/side] aside\n", other + "/main] two\n", other + "/side] aside\n"} {
		e.has("all are followed", follow, "[pod/"+line)
	}
	e.remove("web.yaml")
	e.remove("other.yaml")
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("it goes on without its pods")
	}
}
