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
	conn  *dbus.Conn
	props *prop.Properties

	mu    sync.Mutex
	locks []*os.File // logind's copies of the inhibitors
	asked []string
	by    string // who asked last
}

// inhibitor is logind's method.
type inhibitor struct{ l *fakeLogind }

func (i inhibitor) Inhibit(from dbus.Sender, what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	l := i.l
	lock, err := os.CreateTemp("", "inhibitor")
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	_ = os.Remove(lock.Name())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks, l.asked, l.by = append(l.locks, lock), append(l.asked, strings.Join([]string{what, who, mode}, " ")), string(from)
	return dbus.UnixFD(lock.Fd()), nil
}

func newLogind(t *testing.T, delay time.Duration) *fakeLogind {
	t.Helper()
	l := &fakeLogind{conn: connect(t)}
	if err := l.conn.Export(inhibitor{l}, logindPath, logindInterface); err != nil {
		t.Fatal(err)
	}
	var err error
	l.props, err = prop.Export(l.conn, logindPath, prop.Map{logindInterface: {
		"InhibitDelayMaxUSec":  {Value: uint64(delay.Microseconds()), Emit: prop.EmitFalse},
		"PreparingForShutdown": {Value: false, Emit: prop.EmitFalse},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := l.conn.RequestName(logind, dbus.NameFlagReplaceExisting|dbus.NameFlagAllowReplacement); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
	return l
}

// inhibitors is how many were taken, and how many of these podd holds: both sides are this process,
// and logind keeps its own copy.
func (l *fakeLogind) inhibitors() (taken, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lock := range l.locks {
		own, err := lock.Stat()
		if err != nil {
			continue
		}
		copies := 0
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			if other, err := os.Stat("/proc/self/fd/" + e.Name()); err == nil && os.SameFile(own, other) {
				copies++
			}
		}
		if copies > 1 {
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
	if l.asked[0] != "shutdown podd delay" {
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
	l.says(t, l.conn, false) // once more: each inhibitor but the last is released
	eventually(t, "another inhibitor is held", func() bool { taken, held := l.inhibitors(); return taken == 3 && held == 1 })
	if w.ShuttingDown() != nil || a.holds() {
		t.Error("pods do not start after a shutdown that was called off")
	}

	// logind is restarted, and then says it.
	_ = l.conn.Close()
	again := newLogind(t, time.Minute)
	a.mu.Lock()
	a.pods = append(a.pods, aPod("late", 0, 30))
	a.mu.Unlock()
	again.says(t, again.conn, true)
	eventually(t, "the late pod has ended", func() bool { return len(a.happened()) == 4 })
	cancel()
	<-ended
}

// What logind said while podd was away from the bus, or did not run, counts.
func TestAShutdownThatPoddHasMissedIsCaughtUpWith(t *testing.T) {
	startBus(t)
	l := newLogind(t, time.Minute)
	a := newAgent(aPod("web", 0, 30))
	w := newWorld(t, a, []Period{{0, 20 * time.Second}})
	run := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.watchLogind(ctx) }()
		return func() { cancel(); <-ended }
	}
	l.props.SetMust(logindInterface, "PreparingForShutdown", true)
	stop := run()
	eventually(t, "the pod has ended", func() bool { return len(a.happened()) == 2 })
	stop()
	l.props.SetMust(logindInterface, "PreparingForShutdown", false)
	stop = run()
	eventually(t, "the shutdown is called off", func() bool { return w.ShuttingDown() == nil })
	stop()
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
	l := newLogind(t, 5*time.Second)
	w := newWorld(t, newAgent(), []Period{{0, time.Minute}})
	w.overrideDir = dir
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.watchLogind(ctx) }()
	eventually(t, "the inhibitor is held nevertheless", func() bool { taken, held := l.inhibitors(); return taken == 1 && held == 1 })
	cancel()
	<-ended
	// There is no systemd on this bus that could make logind read its configuration.
	if !strings.Contains(w.log.String(), "logind gives pods less time than they are configured to have") || !strings.Contains(w.log.String(), "unable to reload logind conf") {
		t.Errorf("the log has\n%s", &w.log)
	}
	connection := connect(t)
	if err := w.ensureDelay(t.Context(), connection); err == nil || !strings.Contains(err.Error(), "timed out waiting for logind InhibitDelayMaxSec to update to 1m0s (ShutdownGracePeriod), current value is 5s") {
		t.Errorf("with podd's file in place: got %v", err)
	}
	l.props.SetMust(logindInterface, "InhibitDelayMaxUSec", uint64(1<<64-1)) // infinity
	if err := w.ensureDelay(t.Context(), connection); err != nil {
		t.Errorf("a logind that waits for ever: %v", err)
	}
	if !strings.HasSuffix(overrideText(30400*time.Millisecond), "=31\n") {
		t.Error("a part of a second is cut off")
	}
}
