package systemd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/coreos/go-systemd/v22/util"
)

// IsStopping says whether systemd is stopping the whole system (poweroff, reboot, halt, kexec,
// soft-reboot), as opposed to one unit. It asks systemd itself, not over the D-Bus daemon, which
// may be gone by then. Only root may ask. On a machine without systemd the answer is no. It blocks
// until systemd answers, or ctx ends.
func IsStopping(ctx context.Context) (bool, error) {
	if !util.IsRunningSystemd() {
		return false, nil
	}
	answers := make(chan func() (bool, error), 1)
	go func() {
		stopping, err := askSystemd(ctx)
		answers <- func() (bool, error) { return stopping, err }
	}()
	select {
	case answer := <-answers:
		return answer()
	case <-ctx.Done(): // connecting has no limit of its own
		return false, fmt.Errorf("ask systemd for its state: %w", context.Cause(ctx))
	}
}

func askSystemd(ctx context.Context) (stopping bool, err error) {
	// A cancelled context would close the connection while it is being used.
	conn, err := dbus.NewSystemdConnectionContext(context.WithoutCancel(ctx))
	if err != nil {
		return false, fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	state, err := conn.SystemStateContext(ctx)
	if err != nil {
		return false, fmt.Errorf("ask systemd for its state: %w", err)
	}
	return strings.Trim(state.Value.String(), `"`) == "stopping", nil
}

// ExtendTimeout tells systemd that podd needs that much longer to stop, from now on, whatever
// TimeoutStopSec is.
func (n *Notifier) ExtendTimeout(d time.Duration) {
	n.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()))
}
