package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"podd/internal/pod"
	"podd/server"
)

// syncLoopTimeout is how long the sync loop may take to respond. It only moves values, and never
// blocks for long.
const syncLoopTimeout = 2 * time.Second

// checks returns the named parts of /livez, /healthz and /readyz. A restart of podd helps if
// the sync loop hangs. It does not help if the runtime or the network is broken.
func (n *Node) checks() []server.Check {
	checks := []server.Check{
		{Name: "syncloop", Func: n.syncLoopHealth, Level: server.Live},
		{Name: "runtime", Func: n.runtimeHealth, Level: server.Healthy},
		{Name: "network", Func: n.networkHealth, Level: server.Ready},
		{Name: "pleg", Func: func(context.Context) error { return n.pleg.Healthy() }, Level: server.Healthy},
		{Name: "sources", Func: n.sourcesHealth, Level: server.Ready},
	}
	if m := n.membership; m != nil {
		// Another version does not fail the check: most of a node's work does not depend on it.
		checks = append(checks, server.Check{Name: "apiserver-version", Func: func(context.Context) error { return nil }, Level: server.Ready, Note: m.version.current})
	}
	return checks
}

func (n *Node) syncLoopHealth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncLoopTimeout)
	defer cancel()
	return n.agent.Healthy(ctx)
}

func (n *Node) runtimeHealth(ctx context.Context) error {
	if n.supervisor != nil {
		if err := n.supervisor.Healthy(); err != nil {
			return err
		}
	}
	s, err := n.conn.Status(ctx)
	if err != nil {
		return n.explainTimeout(err)
	}
	if !s.Runtime.OK {
		return fmt.Errorf("%w: %s: %s", pod.ErrUnavailable, s.Runtime.Reason, s.Runtime.Message)
	}
	return nil
}

// explainTimeout explains a call to the runtime that timed out.
func (n *Node) explainTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, pod.ErrUnavailable) {
		return fmt.Errorf("%w: %s accepts connections but does not respond in time; it hangs or is overloaded", pod.ErrUnavailable, n.conn.Endpoint())
	}
	return err
}

// networkHealth checks the default network, which can name what is missing, and then the
// runtime, which decides.
func (n *Node) networkHealth(ctx context.Context) error {
	if n.network != nil {
		if err := n.network.Ready(ctx); err != nil {
			return err
		}
	}
	s, err := n.conn.Status(ctx)
	if err != nil {
		return n.explainTimeout(err)
	}
	if !s.Network.OK {
		return fmt.Errorf("%w: %s: %s", pod.ErrNetworkNotReady, s.Network.Reason, s.Network.Message)
	}
	return nil
}

func (n *Node) sourcesHealth(context.Context) error {
	if !n.podConfig.SeenAll() {
		return errors.New("not every source of pods is ready yet")
	}
	return nil
}

// watchdog is the check for systemd's watchdog: the sync loop responds, and pleg's last contact
// with the runtime is recent enough.
func (n *Node) watchdog() error {
	if err := n.syncLoopHealth(context.Background()); err != nil {
		return err
	}
	return n.pleg.Healthy()
}
