package main

import (
	"context"
	"errors"
	"slices"
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
	// collectAgain is when another look finds what the runtime was still giving
	// up at the last one, of calls that broke off with their podd.
	collectAgain = 10 * time.Second
)

// collect takes away what calls that broke off left in the bundled runtime:
// each time that becomes ready, and again a little later, until no call that
// another made is at work. started is a time before this podd's first call: what
// is older and unknown to the runtime can only be an earlier podd's.
func (n *node) collect(ctx context.Context, started time.Time) error {
	if n.network == nil {
		return nil
	}
	conn, err := grpc.NewClient(n.client.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(pod.MaxRuntimeMessage)))
	if err != nil {
		return err
	}
	defer conn.Close()
	containerd := bundle.Containerd{Conn: conn}
	var began, until time.Time
	var again <-chan time.Time
	for {
		select {
		case began = <-n.runtimeUp:
			until = time.Now().Add(collectAgain) // at least one more look
		case <-again:
		case <-ctx.Done():
			return nil
		}
		if busy := n.collectOnce(ctx, containerd, began, started); busy || time.Now().Before(until) {
			again = time.After(collectAgain)
		} else {
			again = nil
		}
	}
}

// collectOnce says whether the runtime was at work on a sandbox of which it is
// not certain what will become of it.
func (n *node) collectOnce(ctx context.Context, containerd bundle.Containerd, began, started time.Time) (busy bool) {
	listed, err := n.client.SandboxIDs(ctx)
	for errors.Is(err, pod.ErrUnavailable) && ctx.Err() == nil { // ready is said a little before the socket answers
		sleep(ctx, askAgain)
		listed, err = n.client.SandboxIDs(ctx)
	}
	var all []string
	if err == nil {
		all, err = containerd.Sandboxes(ctx)
	}
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		n.log.Warn("what lost sandboxes left is not looked for", "error", err)
		return false
	}
	slack := agoByAnyClock(time.Now(), started, collectSlack)
	before := latest(slack, began, started)
	if n.client.Shared() {
		before = slack // another podd's calls are at work, whenever this one started
	}
	// Shims first: they may hold network namespaces.
	n.collectShims(ctx, containerd, before, began)
	// A sandbox has its network before it is listed, and a call whose client is
	// gone may still succeed: its network is not to be taken from under it.
	busy = slices.ContainsFunc(all, func(id string) bool { return !slices.Contains(listed, id) })
	if busy {
		before = slack
	}
	n.collectNetwork(ctx, append(listed, all...), before)
	return busy
}

// agoByAnyClock is a time so long ago that a file whose own time is before it was
// made then, also when the clock was set since started: by how it was before, or by
// how it is now, whichever is earlier. What it spares by that, a later podd finds.
func agoByAnyClock(now, started time.Time, ago time.Duration) time.Time {
	return earlierBy(now.Round(0), started.Round(0).Add(now.Sub(started)), ago)
}

func earlierBy(a, b time.Time, ago time.Duration) time.Time {
	return slices.MinFunc([]time.Time{a, b}, time.Time.Compare).Add(-ago)
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

func (n *node) collectNetwork(ctx context.Context, sandboxes []string, before time.Time) {
	got, err := n.network.Collect(ctx, sandboxes, before)
	if err != nil && ctx.Err() == nil {
		n.log.Warn("leaked addresses were not all given back", "error", err)
	}
	if got.Any() {
		n.log.Info("leaked addresses given back", "attachments", got.Attachments, "leases", got.Leases, "namespaces", got.Namespaces)
	}
}

func (n *node) collectShims(ctx context.Context, containerd bundle.Containerd, before, began time.Time) {
	binDir, err := bundle.Find(n.own.runtimeDir)
	if err != nil {
		n.log.Warn("leaked shims are not looked for", "error", err)
		return
	}
	s := &bundle.Settings{BinDir: binDir, RootDir: n.cfg.RootDir, StateDir: n.cfg.StateDir}
	got, err := s.CollectShims(ctx, containerd, before, began)
	if err != nil && ctx.Err() == nil {
		n.log.Warn("leaked shims were not all ended", "error", err)
	}
	if got.Any() {
		n.log.Info("leaked shims ended", "shims", got.Shims, "containers", got.Containers, "directories", got.Directories, "sockets", got.Sockets)
	}
}
