package nodeshutdown

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"
	v1 "k8s.io/api/core/v1"

	"podd/internal/atomicfile"
	"podd/internal/logonce"
	"podd/internal/wake"
)

// logind's names on the system bus (org.freedesktop.login1(5)).
const (
	logind          = "org.freedesktop.login1"
	logindPath      = "/org/freedesktop/login1"
	logindInterface = logind + ".Manager"
	prepareSignal   = "PrepareForShutdown"
)

const (
	// logindConfDir has what overrides logind's configuration. The last name of all counts: Debian's
	// unattended-upgrades brings unattended-upgrades-logind-maxdelay.conf.
	logindConfDir, overrideFile = "/etc/systemd/logind.conf.d", "zz-podd.conf"
	// reloadTime is how long logind may take to read its configuration again.
	reloadTime = 5 * time.Second
)

var busRetry = wake.Backoff{Initial: time.Second, Max: time.Minute}

// Run holds logind's delay inhibitor, and ends the pods when logind says that the machine goes
// down, until ctx ends. Without configured periods it only waits.
func (m *Manager) Run(ctx context.Context) error {
	if len(m.config.Periods) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	var failure logonce.Failure
	var delay time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		err := m.watchLogind(ctx)
		if ctx.Err() != nil {
			break
		}
		if failure.IsNew(err) {
			m.log.Error("pods get their time at a shutdown only once systemd stops podd, which is after the node has been seen as ready: trying again", "error", err)
		}
		if time.Since(began) > busRetry.Max {
			delay = 0
		}
		delay = busRetry.Next(delay)
		wake.Sleep(ctx, delay)
	}
	return ctx.Err()
}

// watchLogind serves one connection to the bus until it ends.
func (m *Manager) watchLogind(ctx context.Context) error {
	bus, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("connect to D-Bus: %w", err)
	}
	defer bus.Close()
	// The signals come first: one that was sent between two questions would be lost.
	signals := make(chan *dbus.Signal, 16)
	bus.Signal(signals)
	match := []dbus.MatchOption{dbus.WithMatchSender(logind), dbus.WithMatchInterface(logindInterface), dbus.WithMatchMember(prepareSignal), dbus.WithMatchObjectPath(logindPath)}
	if err := bus.AddMatchSignalContext(ctx, match...); err != nil {
		return fmt.Errorf("watch logind: %w", err)
	}
	if err := m.catchUp(bus); err != nil {
		return err
	}
	if err := m.ensureDelay(ctx, bus); m.delayFailure.IsNew(err) {
		m.log.Error("logind gives pods less time than they are configured to have: the rest of it comes when systemd stops podd", "error", err)
	}
	lock, err := inhibit(ctx, bus)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	m.log.Info("holding logind's delay inhibitor: pods get their time when the machine shuts down", "within", total(m.config.Periods))
	sender := logindName{bus: bus}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s, open := <-signals:
			if !open {
				return errors.New("the connection to D-Bus has ended")
			}
			down, known := goesDown(s)
			switch {
			case !known || !sender.is(ctx, s.Sender):
			case down:
				m.config.RecordEvent(v1.EventTypeNormal, eventShutdown, "Shutdown manager detected shutdown event")
				held := lock
				done := m.begin().done
				go func() { // a cancellation may come meanwhile
					<-done
					_ = held.Close()
				}()
			default:
				m.config.RecordEvent(v1.EventTypeNormal, eventShutdown, "Shutdown manager detected shutdown cancellation")
				m.callOff()
				_ = lock.Close()
				if lock, err = inhibit(ctx, bus); err != nil {
					return err
				}
			}
		}
	}
}

// catchUp begins or calls off a shutdown whose signal podd has missed.
func (m *Manager) catchUp(bus *dbus.Conn) error {
	v, err := bus.Object(logind, logindPath).GetProperty(logindInterface + ".PreparingForShutdown")
	if err != nil {
		return fmt.Errorf("ask logind for PreparingForShutdown: %w", err)
	}
	if down, _ := v.Value().(bool); down {
		m.begin()
	} else {
		m.callOff()
	}
	return nil
}

// logindName knows which connection to the bus is logind's. The match rule does not decide that:
// any user may send a signal like logind's to podd's own connection.
type logindName struct {
	bus   *dbus.Conn
	owner string
}

// is says whether a sender is logind. It asks the bus, which answers at once, unless the sender is
// who logind was.
func (l *logindName) is(ctx context.Context, sender string) bool {
	if l.owner != sender {
		if err := l.bus.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, logind).Store(&l.owner); err != nil {
			l.owner = ""
		}
	}
	return sender != "" && l.owner == sender
}

// eventShutdown is the reason of the kubelet's events.
const eventShutdown = "Shutdown"

// goesDown reads a signal of the bus.
func goesDown(s *dbus.Signal) (down, known bool) {
	if s == nil || s.Name != logindInterface+"."+prepareSignal || len(s.Body) == 0 {
		return false, false
	}
	down, known = s.Body[0].(bool)
	return down, known
}

// inhibit takes a lock that delays the machine's shutdown until it is closed.
func inhibit(ctx context.Context, bus *dbus.Conn) (*os.File, error) {
	var fd dbus.UnixFD
	err := bus.Object(logind, logindPath).CallWithContext(ctx, logindInterface+".Inhibit", 0, "shutdown", "podd", "podd ends the pods of this machine", "delay").Store(&fd)
	if err != nil {
		return nil, fmt.Errorf("take logind's delay inhibitor: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

// ensureDelay makes logind wait for as long as the periods are, if it waits for less.
func (m *Manager) ensureDelay(ctx context.Context, bus *dbus.Conn) error {
	want := total(m.config.Periods)
	has, err := inhibitDelay(bus)
	if err != nil || has >= want {
		return err
	}
	if text, err := os.ReadFile(filepath.Join(m.overrideDir, overrideFile)); err == nil && string(text) == overrideText(want) {
		return tooShort(m.overrideDir, want, has) // podd has said so before
	}
	if err := overrideDelay(m.overrideDir, want); err != nil {
		return fmt.Errorf("unable to override inhibit delay by shutdown manager: %w", err)
	}
	reload := bus.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx, "org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all", int32(1))
	if reload.Err != nil {
		return fmt.Errorf("unable to reload logind conf: %w", reload.Err)
	}
	for deadline := time.Now().Add(reloadTime); time.Now().Before(deadline); {
		wake.Sleep(ctx, 100*time.Millisecond)
		if has, err = inhibitDelay(bus); err != nil || has >= want {
			return err
		}
	}
	return tooShort(m.overrideDir, want, has)
}

// tooShort is the kubelet's error, with what to do.
func tooShort(dir string, want, has time.Duration) error {
	return fmt.Errorf("node shutdown manager was timed out waiting for logind InhibitDelayMaxSec to update to %v (ShutdownGracePeriod), current value is %v: find what sets it with systemd-analyze cat-config systemd/logind.conf; podd's file is %s",
		want, has, filepath.Join(dir, overrideFile))
}

// inhibitDelay returns for how long logind waits for those who hold an inhibitor.
func inhibitDelay(bus *dbus.Conn) (time.Duration, error) {
	v, err := bus.Object(logind, logindPath).GetProperty(logindInterface + ".InhibitDelayMaxUSec")
	if err != nil {
		return 0, fmt.Errorf("ask logind for InhibitDelayMaxUSec: %w", err)
	}
	delay, ok := v.Value().(uint64)
	if !ok {
		return 0, errors.New("logind's InhibitDelayMaxUSec is not a number")
	}
	if delay > math.MaxInt64/uint64(time.Microsecond) { // infinity
		return math.MaxInt64, nil
	}
	return time.Duration(delay) * time.Microsecond, nil
}

// overrideDelay writes the file that makes logind wait.
func overrideDelay(dir string, delay time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, overrideFile), []byte(overrideText(delay)), 0o644)
}

func overrideText(delay time.Duration) string {
	return fmt.Sprintf("# Written by podd: shutdownGracePeriod of its configuration. Removing podd removes it.\n[Login]\nInhibitDelayMaxSec=%.0f\n", math.Ceil(delay.Seconds()))
}
