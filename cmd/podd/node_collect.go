package main

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"podd/bundle"
	"podd/internal/pod"
)

const (
	// collectSlack is how long a call may take: what is older and unknown was
	// left behind, by whomever.
	collectSlack = 5 * time.Minute
	// collectAgain is when a second look finds what the runtime was still
	// giving up at the first, of calls that broke off with their podd.
	collectAgain = 10 * time.Second
)

// collect takes away what calls that broke off left in the bundled runtime,
// each time that became ready and once more a little later. started is a time
// before this podd's first call: what is older and unknown to the runtime can
// only be an earlier podd's.
func (n *node) collect(ctx context.Context, started time.Time) error {
	if n.network == nil {
		return nil
	}
	var began time.Time
	var again <-chan time.Time
	for {
		select {
		case began = <-n.runtimeUp:
			again = time.After(collectAgain)
		case <-again:
			again = nil
		case <-ctx.Done():
			return nil
		}
		before := time.Now().Add(-collectSlack)
		for _, t := range []time.Time{began, started} {
			if t.After(before) {
				before = t
			}
		}
		n.collectOnce(ctx, before)
	}
}

func (n *node) collectOnce(ctx context.Context, before time.Time) {
	sandboxes, err := n.client.SandboxIDs(ctx)
	for errors.Is(err, pod.ErrUnavailable) && ctx.Err() == nil { // ready is said a little before the socket answers
		sleep(ctx, askAgain)
		sandboxes, err = n.client.SandboxIDs(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		n.log.Warn("what lost sandboxes left is not looked for", "error", err)
		return
	}
	// Shims first: they may hold network namespaces.
	n.collectShims(ctx, before)
	got, err := n.network.Collect(ctx, sandboxes, before)
	if err != nil && ctx.Err() == nil {
		n.log.Warn("leaked addresses were not all given back", "error", err)
	}
	if got.Any() {
		n.log.Info("leaked addresses given back", "attachments", got.Attachments, "leases", got.Leases, "namespaces", got.Namespaces)
	}
}

func (n *node) collectShims(ctx context.Context, before time.Time) {
	binDir, err := bundle.Find(n.own.runtimeDir)
	if err != nil {
		n.log.Warn("leaked shims are not looked for", "error", err)
		return
	}
	conn, err := grpc.NewClient(n.client.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.log.Warn("leaked shims are not looked for", "error", err)
		return
	}
	defer conn.Close()
	s := &bundle.Settings{BinDir: binDir, RootDir: n.cfg.RootDir, StateDir: n.cfg.StateDir}
	got, err := s.CollectShims(ctx, bundle.Containerd{Conn: conn}, before)
	if err != nil && ctx.Err() == nil {
		n.log.Warn("leaked shims were not all ended", "error", err)
	}
	if got.Any() {
		n.log.Info("leaked shims ended", "shims", got.Shims, "containers", got.Containers, "directories", got.Directories, "sockets", got.Sockets)
	}
}
