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
	// maxCallDuration is how long a call may take. Anything older that is unknown was left
	// behind, by whomever.
	maxCallDuration = 5 * time.Minute
	// unownedSlack is the minimum age of something that no call can be creating, according
	// to containerd: shims take a moment to exit in good order.
	unownedSlack = 10 * time.Second
	// collectRetryDelay is the delay before another collection. It finds what the runtime was
	// still giving up at the last one, for calls that broke off with their podd. By then, a
	// full disk that made a call fail most likely has room again.
	collectRetryDelay = 10 * time.Second
	// listRetryDelay is the delay before a runtime that does not answer yet is asked again.
	listRetryDelay = 500 * time.Millisecond
)

// Lister tells a LeakCollector about CRI's sandboxes.
type Lister interface {
	// SandboxIDs returns the IDs of all sandboxes that the runtime knows.
	SandboxIDs(ctx context.Context) ([]string, error)
	// Shared says whether another podd works through this runtime.
	Shared() bool
}

// Network takes back the resources of the pod network that lost sandboxes hold.
type Network interface {
	// Collect leaves alone what belongs to a live sandbox, or is younger than before. It
	// logs what it did.
	Collect(ctx context.Context, live []string, before time.Time)
}

// LeakCollectorConfig configures a LeakCollector. All fields are required.
type LeakCollectorConfig struct {
	// Endpoint is the runtime's endpoint, as unix:///path.
	Endpoint string
	// RuntimeDir is the argument of Find; RootDir and StateDir are the runtime's.
	RuntimeDir, RootDir, StateDir string
	Lister                        Lister
	Network                       Network
	// Ready receives, each time that the runtime has become ready, the time when its
	// process began; zero if unknown. Failed receives after a sandbox or container could
	// not be started, or a sandbox or a pod's cgroup could not be removed.
	Ready  <-chan time.Time
	Failed <-chan struct{}
	// Stopped is called after leaked shims and their containers were stopped. It must
	// not block.
	Stopped func()
	// Started is a time before this podd's first call. Anything older that the runtime does
	// not know can only be an earlier podd's.
	Started time.Time
	Log     *slog.Logger
}

// LeakCollector removes what broken-off calls left in the bundled runtime. Make it with
// NewLeakCollector, Run it once.
type LeakCollector struct {
	cfg LeakCollectorConfig
	log *slog.Logger
}

// NewLeakCollector returns a LeakCollector. It starts nothing.
func NewLeakCollector(cfg LeakCollectorConfig) *LeakCollector {
	return &LeakCollector{cfg: cfg, log: cfg.Log}
}

// collectPace says when to collect leftovers again.
type collectPace struct {
	// since is the last time when the runtime became ready or a call failed.
	since time.Time
}

// next returns how long to wait after a collection; 0 means until something happens. busy
// says that another client's calls were at work, failed that not everything could be
// collected.
//
// A call that broke off leaves things at once, or later: on a slow machine, its shim may
// take long to do what the call asked for. So the waits double. The last collection finds
// what only its age identifies: objects that CRI does not list and that have a record in
// containerd.
func (p collectPace) next(now time.Time, busy, failed bool) time.Duration {
	const last = maxCallDuration + collectRetryDelay
	elapsed := now.Sub(p.since)
	switch {
	case busy:
		return collectRetryDelay
	case p.since.IsZero() || elapsed >= last:
		if failed {
			return maxCallDuration
		}
		return 0
	}
	due := collectRetryDelay
	for due <= elapsed {
		due *= 2
	}
	return min(due, last) - elapsed
}

// Run collects each time that the runtime becomes ready, and several times in the five
// minutes after that and after each failed call of this podd; more often while another
// client's call is at work. It blocks until ctx ends.
func (l *LeakCollector) Run(ctx context.Context) error {
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
			if !began.IsZero() { // keeps how long ago that is, even when the clock is set
				began = pace.since.Add(began.Round(0).Sub(pace.since.Round(0)))
			}
			busy, failed = l.collect(ctx, containerd, began, collectAll)
			l.deleteStaleLeases(ctx, containerd, began)
		case <-again:
			again = nil
			busy, failed = l.collect(ctx, containerd, began, collectNotRunning)
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

// collectScope says what a collection examines.
type collectScope bool

const (
	collectAll collectScope = true
	// collectNotRunning leaves out the containers and sandboxes that run according to CRI. They
	// are the majority, and each costs five calls.
	collectNotRunning collectScope = false
)

// collect collects once. busy means that the runtime was at work on a sandbox with an
// uncertain outcome; failed means that not everything was collected.
func (l *LeakCollector) collect(ctx context.Context, containerd Containerd, began time.Time, scope collectScope) (busy, failed bool) {
	listed, err := l.cfg.Lister.SandboxIDs(ctx)
	for errors.Is(err, pod.ErrUnavailable) && ctx.Err() == nil { // it reports ready a little before the socket answers
		wake.Sleep(ctx, listRetryDelay)
		listed, err = l.cfg.Lister.SandboxIDs(ctx)
	}
	var unlisted []string
	if err == nil {
		unlisted, err = containerd.Sandboxes(ctx, listed)
	}
	var running map[string]bool
	if err == nil && scope == collectNotRunning {
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
	criteria, slack := criteriaAt(now.Round(0), momentOf(l.cfg.Started, now), momentOf(began, now), l.cfg.Lister.Shared())
	criteria.Running = running
	// By age alone, even for what an earlier podd's calls left: containerd may still be
	// giving them up.
	failed = !l.deleteAbandoned(ctx, containerd, slack)
	// Shims before the network: they may hold network namespaces.
	failed = !l.collectShims(ctx, containerd, criteria) || failed
	// A sandbox has its network before it is listed, and a call may still succeed after its
	// client is gone: do not take its network from under it.
	before := criteria.Before
	busy = len(unlisted) > 0
	if busy {
		before = slack
	}
	l.cfg.Network.Collect(ctx, append(listed, unlisted...), before)
	return busy, failed
}

// moment is a point in time: its time by the clock as it was then, and how long ago it is by
// a clock that nobody sets. The zero moment is unknown.
type moment struct {
	clock time.Time
	ago   time.Duration
}

// momentOf returns the moment of a time with a monotonic reading.
func momentOf(then, now time.Time) moment {
	if then.IsZero() {
		return moment{}
	}
	return moment{then.Round(0), now.Sub(then)}
}

// earliest returns a time for comparison with file times: a file with an earlier time was
// made before the moment, even if the clock was set since. It is the moment by the old
// clock or by the present one, whichever is earlier. A later podd finds what this spares.
func (m moment) earliest(now time.Time) time.Time {
	return slices.MinFunc([]time.Time{m.clock, now.Add(-m.ago)}, time.Time.Compare)
}

// earliestBefore returns the time that long ago, by the old clock or by the present one,
// whichever is earlier, in case the clock was set since the moment.
func (m moment) earliestBefore(now time.Time, ago time.Duration) time.Time {
	return slices.MinFunc([]time.Time{m.clock.Add(m.ago), now}, time.Time.Compare).Add(-ago)
}

// criteriaAt says how old the leftovers of calls are. slack is the time before which
// anything is a leftover by its age alone. now has no monotonic reading. If the runtime is
// shared, calls of others are at work no matter when this podd was started.
func criteriaAt(now time.Time, started, began moment, shared bool) (criteria LeftoverCriteria, slack time.Time) {
	slack = started.earliestBefore(now, maxCallDuration)
	criteria.RuntimeBegan = began.earliest(now)
	criteria.Before = slack
	if !shared {
		criteria.Before = latest(slack, criteria.RuntimeBegan, started.earliest(now))
	}
	criteria.UnownedBefore = latest(criteria.Before, started.earliestBefore(now, unownedSlack))
	return criteria, slack
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// deleteStaleLeases is called only after a runtime became ready: leases are compared by the wall
// clock, and nobody sets that between the start of a runtime and its first answer.
func (l *LeakCollector) deleteStaleLeases(ctx context.Context, containerd Containerd, began time.Time) {
	deleted, err := containerd.DeleteStaleLeases(ctx, began)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot delete all leases of interrupted calls", "error", err)
	}
	if deleted > 0 {
		l.log.Info("deleted leases of interrupted calls", "leases", deleted)
	}
}

// collectShims returns false if not everything could be collected.
func (l *LeakCollector) collectShims(ctx context.Context, containerd Containerd, criteria LeftoverCriteria) (ok bool) {
	binDir, err := Find(l.cfg.RuntimeDir)
	if err != nil {
		l.log.Warn("cannot look for leaked shims", "error", err)
		return false
	}
	s := &Settings{BinDir: binDir, RootDir: l.cfg.RootDir, StateDir: l.cfg.StateDir}
	got, err := s.CollectShims(ctx, containerd, criteria)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot stop all leaked shims", "error", err)
	}
	if got.Any() {
		l.log.Info("stopped leaked shims", "shims", got.Shims, "containers", got.Containers, "directories", got.Directories, "sockets", got.Sockets)
		l.cfg.Stopped()
	}
	return err == nil
}

// deleteAbandoned returns false if not everything could be deleted. before is the argument
// of Containerd.DeleteAbandoned.
func (l *LeakCollector) deleteAbandoned(ctx context.Context, containerd Containerd, before time.Time) (ok bool) {
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
