package bundle

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"podd/internal/pluginconn"
	"podd/internal/pod"
	"podd/internal/wake"
)

const (
	// collectSlack is how long a call may take: what is older and unknown was
	// left behind, by whomever.
	collectSlack = 5 * time.Minute
	// unownedSlack is how old something must be that no call can be creating, by what
	// containerd knows of it: shims take a moment to exit in good order.
	unownedSlack = 10 * time.Second
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
	// began; zero for unknown. Failed receives after a sandbox or container could
	// not be started, or a sandbox or a pod's cgroup not be removed.
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
	// since is when the runtime became ready, or a call failed: the last time.
	since time.Time
}

// next is how long to wait after a collection; 0 for until something happens. busy says
// that calls of another were at work, failed that not everything could be collected.
//
// A call that broke off leaves things at once, or as late as a slow machine lets its
// shim do what the call asked for; so the waits double. The last collection finds what
// only its age tells: what CRI does not list and containerd has a record of.
func (p collectPace) next(now time.Time, busy, failed bool) time.Duration {
	const last = collectSlack + collectAgain
	elapsed := now.Sub(p.since)
	switch {
	case busy:
		return collectAgain
	case p.since.IsZero() || elapsed >= last:
		if failed {
			return collectSlack
		}
		return 0
	}
	due := collectAgain
	for due <= elapsed {
		due *= 2
	}
	return min(due, last) - elapsed
}

// Run collects each time that the runtime becomes ready, and several times in the five
// minutes after that and after each call of this podd that failed; more often while a
// call that another made is at work. It blocks until ctx ends.
func (l *Leaks) Run(ctx context.Context) error {
	conn, err := pluginconn.Dial(l.cfg.Endpoint, pod.MaxRuntimeMessage)
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
		busy, failed := false, false
		select {
		case began = <-l.cfg.Ready:
			pace.since = time.Now()
			if !began.IsZero() { // how long ago that is, is to be known also when the clock is set
				began = pace.since.Add(began.Round(0).Sub(pace.since.Round(0)))
			}
			busy, failed = l.collect(ctx, containerd, began, everything)
			l.endLeases(ctx, containerd, began)
		case <-again:
			again = nil
			busy, failed = l.collect(ctx, containerd, began, notRunning)
		case <-l.cfg.Failed:
			pace.since = time.Now()
			l.log.Debug("a call to the runtime failed: its leftovers will be collected")
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		if wait := pace.next(now, busy, failed); wait > 0 && (again == nil || now.Add(wait).Before(due)) {
			due = now.Add(wait)
			again = time.After(wait)
		}
	}
}

// collectScope is what a collection examines.
type collectScope bool

const (
	everything collectScope = true
	// notRunning leaves out the containers and sandboxes that run according to CRI:
	// most of them, each of which costs five calls.
	notRunning collectScope = false
)

// collect collects once. busy means that the runtime was at work on a sandbox of which
// it is not certain what will become of it, failed that not everything was collected.
func (l *Leaks) collect(ctx context.Context, containerd Containerd, began time.Time, scope collectScope) (busy, failed bool) {
	listed, err := l.cfg.Lister.SandboxIDs(ctx)
	for errors.Is(err, pod.ErrUnavailable) && ctx.Err() == nil { // ready is said a little before the socket answers
		wake.Sleep(ctx, listAgain)
		listed, err = l.cfg.Lister.SandboxIDs(ctx)
	}
	var unlisted []string
	if err == nil {
		unlisted, err = containerd.Sandboxes(ctx, listed)
	}
	var running map[string]bool
	if err == nil && scope == notRunning {
		running, err = containerd.Running(ctx)
	}
	if ctx.Err() != nil {
		return false, false
	}
	if err != nil {
		l.log.Warn("cannot look for leftovers of lost sandboxes", "error", err)
		return false, true
	}
	l.log.Debug("collecting leftovers of failed calls", "everything", bool(scope))
	now := time.Now()
	remains, slack := remainsAt(now.Round(0), momentOf(l.cfg.Started, now), momentOf(began, now), l.cfg.Lister.Shared())
	remains.Running = running
	// By its age alone, also what an earlier podd's calls left: containerd may still be
	// giving them up.
	failed = !l.deleteAbandoned(ctx, containerd, slack)
	// Shims before the network: they may hold network namespaces.
	failed = !l.collectShims(ctx, containerd, remains) || failed
	// A sandbox has its network before it is listed, and a call whose client is
	// gone may still succeed: its network is not to be taken from under it.
	before := remains.Before
	busy = len(unlisted) > 0
	if busy {
		before = slack
	}
	l.cfg.Network.Collect(ctx, append(listed, unlisted...), before)
	return busy, failed
}

// moment is when something was, by the clock as it was then, and how long ago that is by
// one that nobody sets. The zero moment is unknown.
type moment struct {
	clock time.Time
	ago   time.Duration
}

// momentOf is of a time with a monotonic reading.
func momentOf(then, now time.Time) moment {
	if then.IsZero() {
		return moment{}
	}
	return moment{then.Round(0), now.Sub(then)}
}

// byAnyClock is a time such that a file whose own time is before it was made before the
// moment, also when the clock was set since: by how it was, or by how it is now, whichever is
// earlier. What it spares by that, a later podd finds.
func (m moment) byAnyClock(now time.Time) time.Time {
	return slices.MinFunc([]time.Time{m.clock, now.Add(-m.ago)}, time.Time.Compare)
}

// agoByAnyClock is the same of so long ago, if the clock was set since the moment.
func (m moment) agoByAnyClock(now time.Time, ago time.Duration) time.Time {
	return slices.MinFunc([]time.Time{m.clock.Add(m.ago), now}, time.Time.Compare).Add(-ago)
}

// remainsAt says how old is what calls have left behind, and slack, before which it is left by
// its age alone. now has no monotonic reading. Calls of others are at work whenever this podd
// was started, if it shares the runtime.
func remainsAt(now time.Time, started, began moment, shared bool) (remains Remains, slack time.Time) {
	slack = started.agoByAnyClock(now, collectSlack)
	remains.RuntimeBegan = began.byAnyClock(now)
	remains.Before = slack
	if !shared {
		remains.Before = latest(slack, remains.RuntimeBegan, started.byAnyClock(now))
	}
	remains.UnownedBefore = latest(remains.Before, started.agoByAnyClock(now, unownedSlack))
	return remains, slack
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

// collectShims returns false if not everything could be collected.
func (l *Leaks) collectShims(ctx context.Context, containerd Containerd, remains Remains) (ok bool) {
	binDir, err := Find(l.cfg.RuntimeDir)
	if err != nil {
		l.log.Warn("cannot look for leaked shims", "error", err)
		return false
	}
	s := &Settings{BinDir: binDir, RootDir: l.cfg.RootDir, StateDir: l.cfg.StateDir}
	got, err := s.CollectShims(ctx, containerd, remains)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot stop all leaked shims", "error", err)
	}
	if got.Any() {
		l.log.Info("stopped leaked shims", "shims", got.Shims, "containers", got.Containers, "directories", got.Directories, "sockets", got.Sockets)
		l.cfg.Stopped()
	}
	return err == nil
}

// deleteAbandoned returns false if not everything could be deleted. before is that of
// Containerd.DeleteAbandoned.
func (l *Leaks) deleteAbandoned(ctx context.Context, containerd Containerd, before time.Time) (ok bool) {
	s := &Settings{RootDir: l.cfg.RootDir, StateDir: l.cfg.StateDir}
	deleted, err := containerd.DeleteAbandoned(ctx, s.criHas, before)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot delete all records and leases of failed calls", "error", err)
	}
	if deleted > 0 {
		l.log.Info("deleted records and leases of failed calls", "count", deleted)
	}
	return err == nil
}
