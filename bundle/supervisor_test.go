package bundle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
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
	t.Setenv("PODD_TEST_RUNTIME", sock)
	ch := make(chan readiness, 16)
	s = NewSupervisor(SupervisorConfig{
		Socket: sock, Command: []string{os.Args[0]}, LogFile: sock + ".log", Registerer: reg,
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
		case <-time.After(10 * time.Second):
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
	case <-time.After(20 * time.Second):
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
	s, ready, _ := supervise(t, sock, reg)
	first := next(t, ready)
	if err := s.Healthy(); err != nil {
		t.Errorf("while it runs: got %v, want nil", err)
	}
	if d := time.Since(first.began); d < 0 || d > 10*time.Second {
		t.Errorf("made %v ago, want just now", d)
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

func TestReasonOfAFailedStartIsTold(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "r.sock")
	t.Setenv("PODD_TEST_FAIL", "no container runtime found; build it")
	s, _, _ := supervise(t, sock, nil)
	want := "exit status 3; its last words: no container runtime found; build it"
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
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
	if d := nextDelay(delay, time.Minute); d != firstDelay {
		t.Errorf("after a minute of health: got %v, want %v", d, firstDelay)
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

// The lock is taken in a process that then becomes another, as Exec does, and
// must hold there, and not in that one's children.
func TestLockSurvivesExecAndDiesWithTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if os.Getenv("PODD_TEST_LOCK") != "" {
		if err := lock(os.Getenv("PODD_TEST_LOCK"), "/s"); err != nil {
			t.Fatal(err)
		}
		// The child of the exec'd shell inherits the descriptor and lives on.
		err := syscall.Exec("/bin/sh", []string{"sh", "-c", "sleep 300 & echo $!; exec sleep 300"}, os.Environ())
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockSurvivesExecAndDiesWithTheProcess$")
	cmd.Env = append(os.Environ(), "PODD_TEST_LOCK="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var orphan int
	if _, err := fmt.Fscan(out, &orphan); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(orphan, syscall.SIGKILL)
	running, ok := errors.AsType[*RunningError](lock(path, "/run/x"))
	if !ok || running.PID != cmd.Process.Pid {
		t.Errorf("while held: got %+v, want a RunningError with process %d", running, cmd.Process.Pid)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !alive(orphan) {
		t.Fatal("the orphan is gone, so the test shows nothing")
	}
	if err := lock(path, "/run/x"); err != nil {
		t.Errorf("after its death: got %v, want the lock", err)
	}
}
