package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier notifies the service manager that started this process. Any goroutine may call its
// methods.
type Notifier struct {
	log *slog.Logger
	// pingInterval is the interval of keep-alive pings; 0 without a watchdog.
	pingInterval time.Duration

	mu          sync.Mutex
	status      string // as last sent
	errorLogged bool   // a socket error was logged
}

// New reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from the environment. It returns an
// error if they are malformed. If they are missing, there is no systemd.
func New(log *slog.Logger) (*Notifier, error) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("read systemd's watchdog settings: %w", err)
	}
	// sd_watchdog_enabled(3) recommends half of the limit.
	return &Notifier{log: log, pingInterval: limit / 2}, nil
}

// Ready reports that podd has started: units ordered after it may start.
func (n *Notifier) Ready() { n.send(daemon.SdNotifyReady) }

// Stopping reports that podd is shutting down.
func (n *Notifier) Stopping() { n.send(daemon.SdNotifyStopping) }

// Status sets the line that `systemctl status` shows. Newlines become spaces. An unchanged
// status is not sent again.
func (n *Notifier) Status(text string) {
	text = strings.ReplaceAll(text, "\n", " ")
	n.mu.Lock()
	same := text == n.status
	n.status = text
	n.mu.Unlock()
	if !same {
		n.send("STATUS=" + text)
	}
}

// Run pings the watchdog while health returns nil, until ctx ends. It calls health twice per
// watchdog interval, and returns ctx's cause. If health returns an error, or does not return,
// for WatchdogSec, systemd aborts the process, which dumps its goroutines to the journal, and
// restarts it. Without a watchdog Run only waits.
func (n *Notifier) Run(ctx context.Context, health func() error) error {
	if n.pingInterval <= 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	ticker := time.NewTicker(n.pingInterval)
	defer ticker.Stop()
	well := true
	for {
		if err := health(); err == nil {
			n.send(daemon.SdNotifyWatchdog)
			if !well {
				n.log.Info("healthy again: notifying systemd's watchdog")
				n.Status("healthy")
			}
			well = true
		} else {
			if well {
				n.log.Warn("unhealthy: not notifying systemd's watchdog", "restart_within", 2*n.pingInterval, "reason", err)
			}
			n.Status("unhealthy: " + err.Error())
			well = false
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func (n *Notifier) send(state string) {
	_, err := daemon.SdNotify(false, state)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && !n.errorLogged {
		n.log.Warn("cannot notify systemd", "error", err)
	}
	n.errorLogged = err != nil
}
