package nodeshutdown

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"

	"podd/internal/child"
)

// startBus runs a D-Bus daemon for this test, and makes it the system bus.
func startBus(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("needs dbus-daemon")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "bus.conf")
	text := fmt.Sprintf(`<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=%s/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="*"/><allow receive_type="*"/><allow send_destination="*"/></policy></busconfig>`, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dbus-daemon", "--config-file="+config, "--nofork", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", strings.TrimSpace(address))
}

func connect(t *testing.T) *dbus.Conn {
	t.Helper()
	conn, err := dbus.ConnectSystemBus()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// fakeLogind is what podd asks of logind.
type fakeLogind struct {
	conn *dbus.Conn

	mu    sync.Mutex
	locks []*os.File // logind's ends of the inhibitors
	asked []string
	by    string // who asked last
}

func (l *fakeLogind) Inhibit(from dbus.Sender, what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks, l.asked, l.by = append(l.locks, r), append(l.asked, strings.Join([]string{what, who, mode}, " ")), string(from)
	time.AfterFunc(time.Second, func() { _ = w.Close() }) // it is podd's, once the answer is sent
	return dbus.UnixFD(w.Fd()), nil
}

func newLogind(t *testing.T, delay time.Duration) *fakeLogind {
	t.Helper()
	l := &fakeLogind{conn: connect(t)}
	if err := l.conn.Export(l, logindPath, logindInterface); err != nil {
		t.Fatal(err)
	}
	_, err := prop.Export(l.conn, logindPath, prop.Map{logindInterface: {"InhibitDelayMaxUSec": {Value: uint64(delay.Microseconds()), Emit: prop.EmitFalse}}})
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := l.conn.RequestName(logind, dbus.NameFlagReplaceExisting|dbus.NameFlagAllowReplacement); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
	return l
}

// inhibitors is how many were taken, and how many of these are held.
func (l *fakeLogind) inhibitors() (taken, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lock := range l.locks {
		_ = lock.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := lock.Read(make([]byte, 1)); os.IsTimeout(err) {
			held++
		}
	}
	return len(l.locks), held
}

func (l *fakeLogind) says(t *testing.T, from *dbus.Conn, down bool) {
	t.Helper()
	if err := from.Emit(logindPath, logindInterface+"."+prepareSignal, down); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestLogindDelaysTheShutdownUntilPodsHaveEnded(t *testing.T) {
	startBus(t)
	l := newLogind(t, time.Minute)
	a := newAgent(aPod("web", 0, 30))
	a.takes["web"] = 500 * time.Millisecond
	w := newWorld(t, a, []Period{{0, 20 * time.Second}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	held := func() bool { taken, held := l.inhibitors(); return taken == 1 && held == 1 }
	eventually(t, "an inhibitor is held", held)
	time.Sleep(1500 * time.Millisecond) // only podd has it now
	if !held() || l.asked[0] != "shutdown podd delay" {
		t.Fatalf("asked for %q", l.asked)
	}

	// Anybody may send a signal, to all or to podd alone.
	stranger := connect(t)
	l.says(t, stranger, true)
	message := &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(logindPath)), dbus.FieldInterface: dbus.MakeVariant(logindInterface),
		dbus.FieldMember: dbus.MakeVariant(prepareSignal), dbus.FieldDestination: dbus.MakeVariant(l.by), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(true)),
	}, Body: []any{true}}
	stranger.Send(message, nil)
	time.Sleep(time.Second)
	if got := a.happened(); len(got) > 0 || w.ShuttingDown() != nil {
		t.Fatalf("a stranger ended pods: %q", got)
	}

	l.says(t, l.conn, true)
	eventually(t, "the inhibitor is released", func() bool { _, held := l.inhibitors(); return held == 0 })
	if got := a.happened(); len(got) != 2 || w.ShuttingDown() == nil {
		t.Errorf("got %q before it was released, the node %v", got, w.ShuttingDown())
	}

	l.says(t, l.conn, false)
	eventually(t, "another inhibitor is held", func() bool { taken, held := l.inhibitors(); return taken == 2 && held == 1 })
	if w.ShuttingDown() != nil || a.held {
		t.Error("pods do not start after a shutdown that was called off")
	}

	// logind is restarted, and then says it.
	_ = l.conn.Close()
	time.Sleep(1100 * time.Millisecond)
	again := newLogind(t, time.Minute)
	a.mu.Lock()
	a.pods = append(a.pods, aPod("late", 0, 30))
	a.mu.Unlock()
	again.says(t, again.conn, true)
	eventually(t, "the late pod has ended", func() bool { return len(a.happened()) == 4 })
	cancel()
	<-ended
}

// The configuration of the machine wins over podd's file: this is an error in the kubelet's words.
func TestALogindThatDoesNotWaitLongEnoughIsTold(t *testing.T) {
	dir := t.TempDir()
	if err := overrideDelay(filepath.Join(dir, "logind.conf.d"), 90*time.Second); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "logind.conf.d", overrideFile))
	if err != nil || !strings.HasSuffix(string(text), "[Login]\nInhibitDelayMaxSec=90\n") {
		t.Errorf("got %q, %v", text, err)
	}
	if overrideFile < "unattended-upgrades-logind-maxdelay.conf" {
		t.Errorf("Debian's unattended-upgrades wins over %s", overrideFile)
	}
	startBus(t)
	newLogind(t, 5*time.Second)
	w := newWorld(t, newAgent(), []Period{{0, time.Minute}})
	w.overrideDir = dir
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err = w.watchLogind(ctx)
	if err == nil || !strings.Contains(err.Error(), "unable to reload logind conf") && !strings.Contains(err.Error(), "timed out waiting for logind InhibitDelayMaxSec to update to 1m0s (ShutdownGracePeriod), current value is 5s") {
		t.Errorf("got %v", err)
	}
}
