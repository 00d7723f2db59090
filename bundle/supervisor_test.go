package bundle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestMain lets the test binary play the runtime: it listens on a socket, says
// that it is ready, and stays.
func TestMain(m *testing.M) {
	if sock := os.Getenv("PODD_TEST_RUNTIME"); sock != "" {
		os.Exit(playRuntime(sock))
	}
	os.Exit(m.Run())
}

func playRuntime(sock string) int {
	if err := os.WriteFile(sock+".started", nil, 0o600); err != nil {
		return 1
	}
	if reason := os.Getenv("PODD_TEST_FAIL"); reason != "" {
		fmt.Fprintln(os.Stderr, "noise\n"+reason)
		return 3
	}
	os.Remove(sock)
	l, err := net.Listen("unix", sock)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for wait := os.Getenv("PODD_TEST_WAIT"); wait != ""; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(wait); err == nil {
			break
		}
	}
	if to := os.Getenv("NOTIFY_SOCKET"); to != "" {
		c, err := net.Dial("unixgram", to)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Fprint(c, "STATUS=up\nREADY=1")
		c.Close()
	}
	for {
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
	}
}

type readiness struct {
	pid   int
	began time.Time
}

// supervise runs a Supervisor until the test ends; ready tells each readiness.
func supervise(t *testing.T, sock string, reg prometheus.Registerer) (s *Supervisor, ready <-chan readiness, stop func()) {
	t.Helper()
	return superviseLogged(t, sock, reg, nil)
}

func superviseLogged(t *testing.T, sock string, reg prometheus.Registerer, log *slog.Logger) (s *Supervisor, ready <-chan readiness, stop func()) {
	t.Helper()
	t.Setenv("PODD_TEST_RUNTIME", sock)
	ch := make(chan readiness, 16)
	s = NewSupervisor(SupervisorConfig{
		Socket: sock, Command: []string{os.Args[0]}, LogFile: sock + ".log", Registerer: reg, Log: log,
		OnReady: func(pid int, began time.Time) { ch <- readiness{pid, began} },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run: got %v, want the context's error", err)
			}
		case <-time.After(time.Minute):
			t.Error("Run did not return")
		}
	}
	t.Cleanup(stop)
	return s, ch, stop
}

func next(t *testing.T, ready <-chan readiness) readiness {
	t.Helper()
	select {
	case r := <-ready:
		t.Cleanup(func() { _ = syscall.Kill(r.pid, syscall.SIGKILL) })
		return r
	case <-time.After(time.Minute):
		t.Fatal("no runtime became ready")
		return readiness{}
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestKilledRuntimeIsStartedAgain(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "r.sock")
	reg := prometheus.NewRegistry()
	before := time.Now()
	s, ready, _ := supervise(t, sock, reg)
	first := next(t, ready)
	if err := s.Healthy(); err != nil {
		t.Errorf("while it runs: got %v, want nil", err)
	}
	if first.began.Before(before.Add(-20*time.Millisecond)) || first.began.After(time.Now()) { // the kernel counts in hundredths of a second
		t.Errorf("made at %v, want it since %v", first.began, before)
	}
	if err := syscall.Kill(first.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if second := next(t, ready); second.pid == first.pid {
		t.Error("the same process became ready twice")
	}
	if got := testutil.ToFloat64(s.metrics.restarts); got != 1 {
		t.Errorf("podd_runtime_restarts_total: got %v, want 1", got)
	}
}

func TestStoppingPoddLeavesTheRuntimeAndTheNextAdoptsIt(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "r.sock")
	_, ready, stop := supervise(t, sock, nil)
	first := next(t, ready)
	stop()
	if !alive(first.pid) {
		t.Fatal("the runtime ended with podd")
	}
	s, ready, _ := supervise(t, sock, nil)
	if adopted := next(t, ready); adopted.pid != first.pid {
		t.Errorf("adopted process %d, want %d", adopted.pid, first.pid)
	}
	// Its death is noticed although it is no child of this supervisor.
	if err := syscall.Kill(first.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if second := next(t, ready); second.pid == first.pid || s.Healthy() != nil {
		t.Errorf("after the adopted one died: got process %d, %v", second.pid, s.Healthy())
	}
}

func TestReasonOfAFailedStartIsReported(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "r.sock")
	t.Setenv("PODD_TEST_FAIL", "no container runtime found; build it")
	s, _, _ := supervise(t, sock, nil)
	want := "exit status 3; its last output: no container runtime found; build it"
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := s.Healthy()
		if err != nil && strings.Contains(err.Error(), want) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("got %v, want %q in it", err, want)
		}
	}
}

func TestDelayDoublesAndIsForgottenAfterHealth(t *testing.T) {
	var got []time.Duration
	delay := time.Duration(0)
	for range 9 {
		delay = nextDelay(delay, time.Second)
		got = append(got, delay)
	}
	want := []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000}
	for i := range want {
		if got[i] != want[i]*time.Millisecond {
			t.Fatalf("got %v, want %v ms", got, want)
		}
	}
	if d := nextDelay(delay, time.Minute); d != restartBackoff.Initial {
		t.Errorf("after a minute of health: got %v, want %v", d, restartBackoff.Initial)
	}
}

func TestLargeLogIsPutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "containerd.log")
	f, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, maxLog+1); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("before\n"); err != nil {
		t.Fatal(err)
	}
	if err := rotateLog(path); err != nil {
		t.Fatal(err)
	}
	// The runtime goes on writing to the file that it has open.
	if _, err := f.WriteString("after\n"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "after\n" {
		t.Errorf("the log: got %d bytes, %v, want what was written since", len(text), err)
	}
	old, err := os.ReadFile(path + ".1")
	if err != nil || len(old) != maxLog || !strings.HasSuffix(string(old), "before\n") {
		t.Errorf("the old log: got %d bytes, %v, want the last %d", len(old), err, maxLog)
	}
	if err := rotateLog(path); err != nil {
		t.Error(err)
	}
	if again, _ := os.ReadFile(path + ".1"); len(again) != len(old) {
		t.Error("a small log was put aside too")
	}
}

func TestChildDoesNotGetWhatSystemdMeantForPodd(t *testing.T) {
	got := childEnv([]string{"A=1", "NOTIFY_SOCKET=/run/systemd/notify", "WATCHDOG_USEC=1", "LISTEN_FDS=1"}, "@x")
	if strings.Join(got, " ") != "A=1 NOTIFY_SOCKET=@x" {
		t.Errorf("got %v", got)
	}
}

// lines are those of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

// Everybody in podd's network namespace, a hostNetwork pod too, could say that
// the runtime was ready: the socket had an abstract name and took any sender's word.
func TestOnlyTheRuntimeItselfSaysThatItIsReady(t *testing.T) {
	dir := t.TempDir()
	sock, says := filepath.Join(dir, "r.sock"), filepath.Join(dir, "says")
	t.Setenv("PODD_TEST_WAIT", says)
	said := make(lines, 64)
	_, ready, _ := superviseLogged(t, sock, nil, slog.New(slog.NewTextHandler(said, nil)))
	var to string
	for limit := time.Now().Add(20 * time.Second); to == ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("no runtime was started")
		}
		pid, err := ListenerPID(sock)
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		env, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		for kv := range strings.SplitSeq(string(env), "\x00") {
			if value, ok := strings.CutPrefix(kv, "NOTIFY_SOCKET="); ok {
				to = value
			}
		}
	}
	if strings.HasPrefix(to, "@") {
		t.Errorf("the socket is %q: an abstract name, which pods with the node's network can send to", to)
	} else if info, err := os.Stat(to); err != nil || info.Mode().Perm()&0o022 != 0 {
		t.Errorf("the socket %s: %v, %v; want that only root can write to it", to, info.Mode(), err)
	}
	c, err := net.Dial("unixgram", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprint(c, "READY=1"); err != nil {
		t.Fatal(err)
	}
	for refused := false; !refused; {
		select {
		case <-ready:
			t.Fatal("a runtime that had not said so was taken for ready, for somebody else had")
		case line := <-said:
			refused = strings.Contains(line, "ignoring a notification") && strings.Contains(line, fmt.Sprintf("pid=%d", os.Getpid()))
		case <-time.After(20 * time.Second):
			t.Fatal("nobody read what was said")
		}
	}
	asked := time.Now()
	if err := os.WriteFile(says, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := next(t, ready); got.began.After(asked) {
		t.Errorf("ready: a process that began at %v, want the one that was there at %v", got.began, asked)
	}
	if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the runtime was ready the socket is still there: %v", err)
	}
}
