package bundle

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"podd/internal/pod"
)

const (
	// collectSlack is how long a call may take: what is older and unknown was
	// left behind, by whomever.
	collectSlack = 5 * time.Minute
	// collectAgain is when another collection finds what the runtime was still giving
	// up at the last one, of calls that broke off with their podd; and when a full disk
	// that a call failed for has most likely room again.
	collectAgain = 10 * time.Second
	// listAgain is when a runtime that does not answer yet is asked again.
	listAgain = 500 * time.Millisecond
)

// Lister is what CRI tells a Leaks of sandboxes.
type Lister interface {
	// SandboxIDs are those of all sandboxes that the runtime knows.
	SandboxIDs(ctx context.Context) ([]string, error)
	// Shared says whether another podd works through this runtime.
	Shared() bool
}

// Network takes back what lost sandboxes hold of the pod network.
type Network interface {
	// Collect leaves alone what belongs to a live sandbox, or is younger than
	// before. It says itself what it did.
	Collect(ctx context.Context, live []string, before time.Time)
}

// LeaksConfig is what a Leaks is made of; all fields are required.
type LeaksConfig struct {
	// Endpoint is the runtime's, as unix:///path.
	Endpoint string
	// RuntimeDir is that of Find; RootDir and StateDir are the runtime's.
	RuntimeDir, RootDir, StateDir string
	Lister                        Lister
	Network                       Network
	// Ready receives each time that the runtime became ready when its process
	// began; zero for unknown. Failed receives after a sandbox or
	// container could not be started.
	Ready  <-chan time.Time
	Failed <-chan struct{}
	// Stopped is called after leaked shims and their containers were stopped. It must
	// not block.
	Stopped func()
	// Started is a time before this podd's first call: what is older and unknown to
	// the runtime can only be an earlier podd's.
	Started time.Time
	Log     *slog.Logger
}

// Leaks takes away what calls that broke off left in the bundled runtime. Make it
// with NewLeaks, Run it once.
type Leaks struct {
	cfg LeaksConfig
	log *slog.Logger
}

// NewLeaks starts nothing.
func NewLeaks(cfg LeaksConfig) *Leaks { return &Leaks{cfg: cfg, log: cfg.Log} }

// collectPace says when to collect leftovers again.
type collectPace struct {
	// until is a little after the runtime became ready.
	until time.Time
	// failed is when a sandbox or container could not be started, the last time. What
	// is told by CRI's own directories is collected soon after; a shim that was killed
	// may leave its socket, which containerd does not clear, and is told by its age.
	failed time.Time
}

// next is how long to wait after a collection; 0 for until something happens. busy says
// that calls of another were at work. What a call left is told from what one makes
// only by its age.
func (p collectPace) next(now time.Time, busy bool) time.Duration {
	soon, old := p.failed.Add(collectAgain), p.failed.Add(collectSlack)
	switch {
	case busy || now.Before(p.until):
		return collectAgain
	case now.Before(soon):
		return soon.Sub(now)
	case now.Before(old):
		return old.Sub(now) + collectAgain
	}
	return 0
}

// Run collects each time that the runtime becomes ready, and again a little later,
// until no call that another made is at work; and once what a failed call of this
// podd left is old enough. It blocks until ctx ends.
func (l *Leaks) Run(ctx context.Context) error {
	conn, err := dial(l.cfg.Endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	containerd := Containerd{Conn: conn}
	var began time.Time
	var pace collectPace
	var again <-chan time.Time
	var due time.Time // of again
	for {
		busy := false
		select {
		case began = <-l.cfg.Ready:
			pace.until = time.Now().Add(collectAgain) // at least once more
			busy = l.collect(ctx, containerd, began)
			l.endLeases(ctx, containerd, began)
		case <-again:
			again = nil
			busy = l.collect(ctx, containerd, began)
		case <-l.cfg.Failed:
			pace.failed = time.Now()
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		if wait := pace.next(now, busy); wait > 0 && (again == nil || now.Add(wait).Before(due)) {
			due = now.Add(wait)
			again = time.After(wait)
		}
	}
}

// collect collects once, and says whether the runtime was at work on a sandbox of which it is
// not certain what will become of it.
func (l *Leaks) collect(ctx context.Context, containerd Containerd, began time.Time) (busy bool) {
	listed, err := l.cfg.Lister.SandboxIDs(ctx)
	for errors.Is(err, pod.ErrUnavailable) && ctx.Err() == nil { // ready is said a little before the socket answers
		sleep(ctx, listAgain)
		listed, err = l.cfg.Lister.SandboxIDs(ctx)
	}
	var all []string
	if err == nil {
		all, err = containerd.Sandboxes(ctx)
	}
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		l.log.Warn("cannot look for leftovers of lost sandboxes", "error", err)
		return false
	}
	slack := agoByAnyClock(time.Now(), l.cfg.Started, collectSlack)
	before := latest(slack, began, l.cfg.Started)
	if l.cfg.Lister.Shared() {
		before = slack // another podd's calls are at work, whenever this one started
	}
	// Shims first: they may hold network namespaces.
	l.collectShims(ctx, containerd, before, began)
	// A sandbox has its network before it is listed, and a call whose client is
	// gone may still succeed: its network is not to be taken from under it.
	busy = slices.ContainsFunc(all, func(id string) bool { return !slices.Contains(listed, id) })
	if busy {
		before = slack
	}
	l.cfg.Network.Collect(ctx, append(listed, all...), before)
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

// endLeases is called only where a runtime became ready: leases are told by the wall
// clock, and between the start of a runtime and its first answer nobody sets it.
func (l *Leaks) endLeases(ctx context.Context, containerd Containerd, began time.Time) {
	ended, err := containerd.EndLeases(ctx, began)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot delete all leases of interrupted calls", "error", err)
	}
	if ended > 0 {
		l.log.Info("deleted leases of interrupted calls", "leases", ended)
	}
}

func (l *Leaks) collectShims(ctx context.Context, containerd Containerd, before, began time.Time) {
	binDir, err := Find(l.cfg.RuntimeDir)
	if err != nil {
		l.log.Warn("cannot look for leaked shims", "error", err)
		return
	}
	s := &Settings{BinDir: binDir, RootDir: l.cfg.RootDir, StateDir: l.cfg.StateDir}
	abandoned, err := containerd.DeleteAbandoned(ctx, s.criContainer)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot delete all records and leases of failed calls", "error", err)
	}
	if abandoned > 0 {
		l.log.Info("deleted records and leases of failed calls", "count", abandoned)
	}
	got, err := s.CollectShims(ctx, containerd, before, began)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot stop all leaked shims", "error", err)
	}
	if got.Any() {
		l.log.Info("stopped leaked shims", "shims", got.Shims, "containers", got.Containers, "directories", got.Directories, "sockets", got.Sockets)
		l.cfg.Stopped()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
