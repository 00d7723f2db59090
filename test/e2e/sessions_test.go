package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podd/test/e2e/console"
)

// command is one of podd's commands, for this test's podd.
func (e *env) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, e.podd.Binary, append([]string{name, "--state-dir", e.node.State()}, args...)...)
	c.WaitDelay = 10 * time.Second
	return c
}

// prints runs one of podd's commands to its end and returns its standard output.
func (e *env) prints(name string, args ...string) (string, error) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	out, err := e.command(ctx, name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("podd %s %q: %w: %s", name, args, err, exit.Stderr)
	}
	return string(out), err
}

// background starts one of podd's commands and ends it with the test.
func (e *env) background(name string, args ...string) (out *console.Output, done <-chan struct{}) {
	e.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.Context()))
	out = &console.Output{}
	c := e.command(ctx, name, args...)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		cancel()
		e.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	e.Cleanup(func() { cancel(); <-ended })
	return out, ended
}

func (e *env) has(what string, out fmt.Stringer, want string) {
	e.Helper()
	e.eventually(what, func(context.Context) error {
		if got := out.String(); !strings.Contains(got, want) {
			return fmt.Errorf("got %q, want %q in it", got, want)
		}
		return nil
	})
}

func TestLogsOfPodsAreReadAndFollowed(t *testing.T) {
	e := begin(t)
	e.write("web.yaml", e.podOf("web", "echo one; echo two; : > /out/web; while [ ! -e /out/go ]; do sleep 0.05; done; echo three; exit 1"))
	e.write("other.yaml", e.podOf("other", "echo other; : > /out/other; ${REST}"))
	e.mark("web", "other")
	for name, want := range map[string]string{"web": "one\ntwo\n", "other": "other\n"} {
		e.eventually("what "+name+" has said is in its log", func(context.Context) error {
			if got, err := e.prints("logs", name); err != nil || got != want {
				return fmt.Errorf("got %q, %w", got, err)
			}
			return nil
		})
	}
	if got, err := e.prints("logs", "--prefix", "--tail=1", "web", "other"); err != nil ||
		got != fmt.Sprintf("[pod/web-%[1]s/main] two\n[pod/other-%[1]s/main] other\n", e.podd.NodeName()) {
		t.Errorf("of two pods: got %q, %v", got, err)
	}
	follow, ended := e.background("logs", "-f", "--tail=1", "web")
	e.has("follow begins", follow, "two\n")
	if err := os.WriteFile(e.out+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("follow did not end with its container")
	}
	if got := follow.String(); got != "two\nthree\n" {
		t.Errorf("followed: got %q", got)
	}
	e.eventually("the last life's log is there", func(context.Context) error {
		if got, err := e.prints("logs", "--previous", "web"); err != nil || got != "one\ntwo\nthree\n" {
			return fmt.Errorf("got %q, %w", got, err)
		}
		return nil
	})
	if _, err := e.prints("logs", "web", "-c", "none"); err == nil || !strings.Contains(err.Error(), "has no container none: it has main") {
		t.Errorf("got %v", err)
	}
	if _, err := e.prints("logs", "--since=1s", "--since-time=2026-01-01T00:00:00Z", "web"); err == nil || !strings.Contains(err.Error(), "at most one of --since and --since-time") {
		t.Errorf("got %v", err)
	}
}

// TestALogIsFollowedWhileAHookRuns: until its postStart hook has ended, a container runs and is
// shown as one that is being created.
func TestALogIsFollowedWhileAHookRuns(t *testing.T) {
	e := begin(t)
	e.write("web.yaml", withFields(e.podOf("web", "echo one; : > /out/web; while [ ! -e /out/go ]; do sleep 0.05; done; echo two; ${REST}"),
		`lifecycle: {postStart: {exec: {command: [sh, -c, "while [ ! -e /out/hooked ]; do sleep 0.05; done"]}}}`))
	// Its first instruction precedes the runtime's word that it runs.
	e.eventually("its log can be read", func(context.Context) error {
		if got, err := e.prints("logs", "web"); err != nil || got != "one\n" {
			return fmt.Errorf("got %q, %w", got, err)
		}
		return nil
	})
	follow, ended := e.background("logs", "-f", "web")
	e.has("follow begins", follow, "one\n")
	if err := os.WriteFile(e.out+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e.has("follow goes on", follow, "one\ntwo\n")
	if err := os.WriteFile(e.out+"/hooked", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e.ready("web")
	select {
	case <-ended:
		t.Error("it ended before its container")
	default:
	}
	e.remove("web.yaml")
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("it goes on without its container")
	}
}

func TestACommandRunsInAContainer(t *testing.T) {
	e := begin(t)
	e.write("web.yaml", e.resting("web"))
	e.ready("web")
	if got, err := e.prints("exec", "web", "--", "sh", "-c", "echo out; echo err >&2"); err != nil || got != "out\n" {
		t.Errorf("got %q, %v", got, err)
	}
	var exit *exec.ExitError
	if _, err := e.prints("exec", "web", "--", "sh", "-c", "exit 7"); !errors.As(err, &exit) || exit.ExitCode() != 7 || !strings.Contains(err.Error(), "command terminated with exit code 7") {
		t.Errorf("a command that fails: got %v", err)
	}
	if _, err := e.prints("exec", "web", "--", "/no/such/command"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a command that is not there: got %v", err)
	}
	in := e.command(t.Context(), "exec", "-i", "web", "--", "cat")
	in.Stdin = strings.NewReader(strings.Repeat("0123456789abcdef", 1<<16))
	if out, err := in.Output(); err != nil || len(out) != 1<<20 {
		t.Errorf("a mebibyte through cat: got %d bytes, %v", len(out), err)
	}
	hangs := e.command(t.Context(), "exec", "web", "--", "sh", "-c", ": > /out/began; exec sleep 3600")
	if err := hangs.Start(); err != nil {
		t.Fatal(err)
	}
	e.mark("began")
	_ = hangs.Process.Signal(unix.SIGINT)
	if err := hangs.Wait(); err == nil {
		t.Error("a command that was interrupted ended well")
	}
}

func TestAContainersOwnProcessIsAttachedTo(t *testing.T) {
	e := begin(t)
	manifest := e.podOf("web", "while read line; do echo got $line; [ $line != end ] || exit 3; done")
	e.write("web.yaml", replaced(e, manifest, "  - name: main\n", "  - name: main\n    stdin: true\n"))
	e.write("deaf.yaml", e.resting("deaf"))
	e.ready("deaf")
	e.ready("web")
	watcher, ended := e.background("attach", "web")
	attached := e.command(t.Context(), "attach", "-i", "web")
	in, err := attached.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &console.Output{}
	attached.Stdout = out
	if err := attached.Start(); err != nil {
		t.Fatal(err)
	}
	enter := func(line string) {
		t.Helper()
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	enter("one")
	e.has("the process answers", out, "got one")
	e.eventually("whoever else is attached sees it, too", func(context.Context) error {
		enter("again") // it may have come to be attached after the first line
		if got := watcher.String(); !strings.Contains(got, "got again") {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
	enter("end")
	_ = in.Close()
	if err := attached.Wait(); err != nil {
		t.Errorf("the end of the process: got %v", err)
	}
	// Who is attached with standard input may not be shown what a container prints as it ends:
	// containerd 2.4 removes that client as soon as one of the two outputs has ended, whatever
	// the other one still holds (ContainerIO.Attach). The log has it.
	e.eventually("the log has its last word", func(context.Context) error {
		if got, err := e.prints("logs", "--previous", "web"); err != nil || !strings.HasSuffix(got, "got end\n") {
			return fmt.Errorf("got %q, %v", got, err)
		}
		return nil
	})
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the other one did not end with the process")
	}
	if _, err := e.prints("attach", "-i", "deaf"); err == nil || !strings.Contains(err.Error(), "has no standard input") {
		t.Errorf("got %v", err)
	}
}

func TestFilesAreCopiedToAndFromAContainer(t *testing.T) {
	e := begin(t)
	e.write("web.yaml", e.resting("web"))
	e.ready("web")
	dir := t.TempDir()
	big := strings.Repeat("0123456789abcdef", 1<<16)
	if err := errors.Join(os.MkdirAll(dir+"/site/sub", 0o755), os.WriteFile(dir+"/site/sub/big", []byte(big), 0o640), os.WriteFile(dir+"/site/run", []byte("#!/bin/sh\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	cp := func(from, to string) {
		t.Helper()
		if _, err := e.prints("cp", from, to); err != nil {
			t.Fatal(err)
		}
	}
	cp(dir+"/site", "web:/tmp/renamed") // to a name that is not there yet
	cp(dir+"/site", "web:/tmp")         // into a directory
	cp(dir+"/site/run", "web:/tmp/file")
	if got, err := e.prints("exec", "web", "--", "sh", "-c", "cd /tmp; find renamed site file | sort; stat -c %a site/sub/big file"); err != nil ||
		got != "file\nrenamed\nrenamed/run\nrenamed/sub\nrenamed/sub/big\nsite\nsite/run\nsite/sub\nsite/sub/big\n640\n755\n" {
		t.Errorf("in the container: %q, %v", got, err)
	}
	cp("web:/tmp/site", dir+"/back")
	cp("web:/tmp/site/run", dir) // into a directory
	for name, want := range map[string]string{"/back/sub/big": big, "/back/run": "#!/bin/sh\n", "/run": "#!/bin/sh\n"} {
		if got, err := os.ReadFile(dir + name); err != nil || string(got) != want {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, len(want))
		}
	}
	for _, c := range []struct{ from, to, want string }{
		{"web:/none", dir, "tar in the container failed with exit code 1: tar: /none: No such file or directory; tar: error exit delayed"},
		{dir + "/none", "web:/tmp", "no such file or directory"},
		{dir + "/site", "web:/none/deep", ": tar: can't change directory to '/none'"},
		{dir + "/site", "nobody:/tmp", "nobody"},
	} {
		if _, err := e.prints("cp", c.from, c.to); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("cp %s %s: got %v, want %q", c.from, c.to, err, c.want)
		}
	}
}

// TestACopyFromAContainerGoesOnAfterPoddWasKilled: tar stops in the middle, podd is killed
// and started again; kubectl cp's --retries resumes there. A command of which nobody tells
// how it ended did not succeed.
func TestACopyFromAContainerGoesOnAfterPoddWasKilled(t *testing.T) {
	e := begin(t)
	// The container's own tar sends half of its archive, and the rest only once it is asked again.
	halting := "#!/bin/sh\nbusybox tar \"$@\" > $3.tar; head -c 500000 $3.tar; [ -e /out/again ] || { : > /out/half${3##*/}; sleep 1000; }; tail -c +500001 $3.tar\n"
	e.write("web.yaml", e.podOf("web", fmt.Sprintf("rm /bin/tar; printf '%%s' %s > /bin/tar; chmod +x /bin/tar; seq 150000 | tee /tmp/1 > /tmp/2; : > /out/web; ${REST}", "'"+halting+"'")))
	e.mark("web")
	e.ready("web")
	dir := t.TempDir()
	once, onceEnded := e.background("cp", "web:/tmp/1", dir+"/once")
	resumed, ended := e.background("cp", "--retries=-1", "web:/tmp/2", dir+"/big")
	e.mark("half1", "half2")
	e.eventually("some of it has come", func(context.Context) error {
		info, err := os.Stat(dir + "/big")
		if err == nil && info.Size() == 0 {
			err = errors.New("nothing yet")
		}
		return err
	})
	if err := os.WriteFile(filepath.Join(e.out, "again"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e.kill()
	e.start()
	for _, done := range []<-chan struct{}{ended, onceEnded} {
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatalf("it does not end: %s", resumed)
		}
	}
	want := &strings.Builder{}
	for i := range 150000 {
		_, _ = fmt.Fprintln(want, i+1)
	}
	if got, err := os.ReadFile(dir + "/big"); err != nil || string(got) != want.String() {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, want.Len())
	}
	if got := resumed.String(); !strings.Contains(got, ": resuming at byte ") || strings.Contains(got, " byte 0 ") {
		t.Errorf("it says %q", got)
	}
	if got := once.String(); !strings.Contains(got, "podd cp: ") || !strings.Contains(got, "the session broke off before the command ended") {
		t.Errorf("without retries it says %q", got)
	}
}

func TestPortsOfAPodAreForwarded(t *testing.T) {
	e := begin(t)
	e.write("web.yaml", withFields(e.podOf("web", "echo page > /tmp/index.html; dd if=/dev/zero of=/tmp/big bs=1M count=48; exec httpd -f -p 127.0.0.1:8080 -h /tmp"),
		"readinessProbe: {exec: {command: [wget, -q, -O, /dev/null, http://127.0.0.1:8080/index.html]}, periodSeconds: 1, timeoutSeconds: 30}"))
	e.ready("web")
	out, ended := e.background("port-forward", "web", ":8080", "0:9")
	e.has("it listens", out, "-> 9")
	_, rest, _ := strings.Cut(out.String(), "Forwarding from 127.0.0.1:")
	port, _, _ := strings.Cut(rest, " ")
	for range 20 {
		answer, err := http.Get("http://127.0.0.1:" + port + "/index.html")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || string(body) != "page\n" {
			t.Errorf("got %q, %v", body, err)
		}
	}
	// Nobody listens on port 9 of the pod: that connection ends, and the others go on.
	if n := strings.LastIndex(out.String(), "Forwarding from 127.0.0.1:"); n >= 0 {
		refused, _, _ := strings.Cut(out.String()[n+len("Forwarding from 127.0.0.1:"):], " ")
		if _, err := http.Get("http://127.0.0.1:" + refused); err == nil {
			t.Error("port 9 answered")
		}
	}
	e.has("it says so", out, "an error occurred forwarding")
	// One that nobody reads to its end does not hang the others.
	for range 3 {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprint(conn, "GET /big HTTP/1.0\r\n\r\n")
		if err == nil {
			_, err = io.ReadFull(conn, make([]byte, 1024))
		}
		if err = errors.Join(err, conn.Close()); err != nil {
			t.Fatal(err)
		}
	}
	client := http.Client{Timeout: patience}
	if _, err := client.Get("http://127.0.0.1:" + port + "/index.html"); err != nil {
		t.Error(err)
	}
	e.remove("web.yaml")
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("it goes on without its pod")
	}
}

func TestAShellInATerminal(t *testing.T) {
	e := begin(t)
	e.write("web.yaml", e.resting("web"))
	e.ready("web")
	e.shell(e.command(t.Context(), "exec", "-it", "web", "--", "sh"), 5)
}

// The terminal is the container's own, and it is the container that ends: that is no failure of
// podd attach.
func TestAContainersOwnTerminalIsAttachedTo(t *testing.T) {
	e := begin(t)
	e.write("web.yaml", replaced(e, e.podOf("web", ": > /out/web; exec sh"), "    image:", "    stdin: true\n    tty: true\n    image:"))
	e.ready("web")
	e.shell(e.command(t.Context(), "attach", "-it", "web"), 0)
}

// shell goes through what a person expects of a shell in a container: its prompt, the size of
// the window, Ctrl-C, the exit code of c when it ends with 5, and a terminal that is as before.
func (e *env) shell(c *exec.Cmd, code int) {
	e.Helper()
	terminal := e.sit(c)
	enter := func(text string) {
		e.Helper()
		if err := terminal.Type(text); err != nil {
			e.Fatal(err)
		}
	}
	enter("\r") // whoever is attached to a shell has missed its prompt
	e.has("the shell prompts", terminal, "# ")
	enter("stty size\r")
	e.has("it has the terminal's size", terminal, "37 91")
	if err := terminal.Resize(120, 50); err != nil {
		e.Fatal(err)
	}
	e.eventually("it has the new size", func(context.Context) error {
		enter("stty size\r")
		time.Sleep(100 * time.Millisecond) // the shell's answer, which is asked for again
		if !strings.Contains(terminal.String(), "50 120") {
			return fmt.Errorf("got %q", terminal)
		}
		return nil
	})
	enter("sleep 3600; echo woken-$?\r")
	e.eventually("Ctrl-C ends the command and not the shell", func(context.Context) error {
		enter("\x03")
		time.Sleep(100 * time.Millisecond)
		enter("echo still-$((1+1))\r")
		time.Sleep(100 * time.Millisecond)
		if !strings.Contains(terminal.String(), "still-2") {
			return fmt.Errorf("got %q", terminal)
		}
		return nil
	})
	enter("exit 5\r")
	if _ = terminal.Wait(); c.ProcessState.ExitCode() != code {
		e.Errorf("got %s, want exit code %d; the terminal shows %q", c.ProcessState, code, terminal)
	}
	if err := terminal.AsBefore(); err != nil {
		e.Error(err)
	}
}

// sit starts a command in a terminal, which goes with the test.
func (e *env) sit(c *exec.Cmd) *console.Terminal {
	e.Helper()
	terminal, err := console.Start(c, 91, 37)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := terminal.Close(); err != nil {
			e.Error(err)
		}
	})
	return terminal
}
