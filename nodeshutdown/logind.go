package nodeshutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	if err := m.ensureDelay(ctx, bus); err != nil {
		return err
	}
	lock, err := inhibit(ctx, bus)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	match := []dbus.MatchOption{dbus.WithMatchSender(logind), dbus.WithMatchInterface(logindInterface), dbus.WithMatchMember(prepareSignal), dbus.WithMatchObjectPath(logindPath)}
	if err := bus.AddMatchSignalContext(ctx, match...); err != nil {
		return fmt.Errorf("watch logind: %w", err)
	}
	sender := logindName{bus: bus}
	signals := make(chan *dbus.Signal, 16)
	bus.Signal(signals)
	m.log.Info("holding logind's delay inhibitor: pods get their time when the machine shuts down", "within", total(m.config.Periods))
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
				if lock, err = inhibit(ctx, bus); err != nil {
					return err
				}
			}
		}
	}
}

// logindName knows which connection to the bus is logind's. The match rule does not decide that:
// any user may send a signal like logind's to podd's own connection.
type logindName struct {
	bus   *dbus.Conn
	owner string
	asked time.Time
}

// is says whether a sender is logind. It asks the bus again, at most once a second, if the sender
// is not who logind was: logind may have been restarted.
func (l *logindName) is(ctx context.Context, sender string) bool {
	if l.owner != sender && time.Since(l.asked) > time.Second {
		l.asked = time.Now()
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

// ensureDelay makes logind wait for as long as the periods take, if it waits for less.
func (m *Manager) ensureDelay(ctx context.Context, bus *dbus.Conn) error {
	want := total(m.config.Periods)
	has, err := inhibitDelay(bus)
	if err != nil || has >= want {
		return err
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
	return fmt.Errorf("node shutdown manager was timed out waiting for logind InhibitDelayMaxSec to update to %v (ShutdownGracePeriod), current value is %v: a file in %s whose name comes after %s, or logind.conf of this machine, says otherwise",
		want, has, m.overrideDir, overrideFile)
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
	return time.Duration(delay) * time.Microsecond, nil
}

// overrideDelay writes the file that makes logind wait.
func overrideDelay(dir string, delay time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("# Written by podd: shutdownGracePeriod of its configuration. Removing podd removes it.\n[Login]\nInhibitDelayMaxSec=%.0f\n", delay.Seconds())
	return atomicfile.Write(dir+"/"+overrideFile, []byte(text), 0o644)
}
