package systemd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// manager plays systemd: it listens where NOTIFY_SOCKET points.
func manager(t *testing.T, watchdog time.Duration) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	if watchdog > 0 {
		t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
		t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	}
	return conn
}

// heard returns the next message, or "" if there is none within the time.
func heard(t *testing.T, conn *net.UnixConn, within time.Duration) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1024)
	n, err := conn.Read(buf)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func mustHear(t *testing.T, conn *net.UnixConn, want string) {
	t.Helper()
	if got := heard(t, conn, time.Minute); got != want {
		t.Errorf("systemd heard %q, want %q", got, want)
	}
}

func newNotifier(t *testing.T) *Notifier {
	t.Helper()
	n, err := New(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReadyStatusStopping(t *testing.T) {
	conn := manager(t, 0)
	n := newNotifier(t)
	n.Ready()
	mustHear(t, conn, "READY=1")
	n.Status("3 pods\nrunning")
	n.Status("3 pods running") // the same
	n.Status("4 pods running")
	mustHear(t, conn, "STATUS=3 pods running")
	mustHear(t, conn, "STATUS=4 pods running")
	n.Stopping()
	mustHear(t, conn, "STOPPING=1")
}

func TestWatchdogIsFedOnlyWhileHealthy(t *testing.T) {
	conn := manager(t, 100*time.Millisecond)
	n := newNotifier(t)
	var sick atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	start := time.Now()
	go func() {
		ended <- n.Run(ctx, func() error {
			if sick.Load() {
				return errors.New("sync loop stands still")
			}
			return nil
		})
	}()
	for range 3 {
		mustHear(t, conn, "WATCHDOG=1")
	}
	if took := time.Since(start); took < 90*time.Millisecond {
		t.Errorf("fed three times in %v, want at most twice an interval of 100ms", took)
	}
	sick.Store(true)
	for {
		if got := heard(t, conn, time.Minute); got == "STATUS=unhealthy: sync loop stands still" {
			break
		} else if got != "WATCHDOG=1" {
			t.Fatalf("systemd heard %q", got)
		}
	}
	if got := heard(t, conn, 300*time.Millisecond); got != "" {
		t.Errorf("systemd heard %q while podd was sick", got)
	}
	sick.Store(false)
	mustHear(t, conn, "WATCHDOG=1")
	mustHear(t, conn, "STATUS=healthy")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: got %v", err)
	}
}

func TestWithoutSystemdNothingIsAskedAndNothingFails(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	n := newNotifier(t)
	n.Ready()
	n.Status("x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Run(ctx, func() error { t.Error("health was asked"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: got %v", err)
	}
}

func TestWatchdogOfAnotherProcessIsNotOurs(t *testing.T) {
	manager(t, time.Second)
	t.Setenv("WATCHDOG_PID", "1")
	if n := newNotifier(t); n.pingInterval != 0 {
		t.Errorf("got an interval of %v, want none", n.pingInterval)
	}
}
