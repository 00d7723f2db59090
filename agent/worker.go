package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"podd/agent/plan"
	"podd/internal/pod"
)

// worker makes one generation of one pod run, and end. Its goroutine is run;
// others only leave something in its mailbox.
type worker struct {
	agent *Agent
	uid   pod.UID
	name  string
	log   *slog.Logger
	poke  chan struct{}
	// order is poked besides by those who are always heard: who wants the pod
	// otherwise, or its end, or another try.
	order chan struct{}

	mu         sync.Mutex // guards what follows
	mail       mail
	interrupt  context.CancelCauseFunc // ends the round that is under way; nil for none
	postStarts map[string]*postStart   // by container ID
	preStopped map[string]bool         // hooks that were begun, by container ID
	finished   bool                    // the pod has run to its end
	deferred   bool                    // a resize waits for room

	// What follows belongs to run's goroutine alone.
	phase     pod.Phase
	memory    plan.Memory
	startTime time.Time
	since     time.Time // the same on podd's own clock
	over      bool      // the pod has run to its end, now or before
	kept      kept      // and what is remembered of that
	mounted   bool
	released  bool // network, volumes and cgroup of a pod that has run to its end
	created   bool // this podd made a sandbox
	tries     int  // rounds in a row that ended in an error
	acted     acted
	told      told
	counted   counted
	stops     map[string]*stopping // by container ID
	stopped   chan struct{}        // poked when one of them comes to its end
	// allocation is what the node granted while a resize waits.
	allocation allocation
	// overdue is when the end that the node decided on takes too long.
	overdue time.Time
	// restarting is when the restart of all containers began that is under way.
	restarting time.Time
	// spawn runs what goes on beside the rounds; it ends with the worker, or
	// when its function is called.
	spawn func(func(context.Context)) context.CancelFunc
	// imageSince is when the start began to wait for an image, pulling what
	// earlier waits took.
	imageSince time.Time
	pulling    time.Duration
}

func newWorker(a *Agent, d *pod.Desired) *worker {
	name := d.Name()
	if d.Pod.Name == "" {
		name = "" // only its UID is known
	}
	w := &worker{
		agent:      a,
		uid:        d.UID(),
		name:       name,
		log:        a.log.With("pod", name, "uid", d.UID()),
		poke:       make(chan struct{}, 1),
		order:      make(chan struct{}, 1),
		mail:       mail{desired: d},
		told:       told{states: make(map[string]pod.ContainerState)},
		postStarts: make(map[string]*postStart),
		preStopped: make(map[string]bool),
		stops:      make(map[string]*stopping),
		stopped:    make(chan struct{}, 1),
	}
	if k, ended := a.ends.of(d.UID()); ended {
		w.startTime = k.StartTime
		if k.Reason != "" {
			w.mail.end = &k.End
		} else {
			w.over, w.kept, w.told.over = true, k, true
		}
	}
	return w
}

// deafness is the longest time after a round that went wrong in which no event
// wakes the worker: such a round's own calls cause some, and each would start
// the next one. Orders are heard.
const deafness = time.Second

// run looks, decides and acts until the pod is gone or ctx ends.
func (w *worker) run(ctx context.Context) {
	life, end := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer end()
	w.spawn = func(do func(context.Context)) context.CancelFunc {
		ctx, cancel := context.WithCancel(life)
		beside.Go(func() {
			defer cancel()
			do(ctx)
		})
		return cancel
	}
	for w.phase != pod.PhaseGone && ctx.Err() == nil {
		wakeAt, again := w.round(ctx)
		if w.tries > 0 {
			wait(ctx, w.order, earliest(wakeAt, time.Now().Add(deafness)))
		}
		if !again {
			wait(ctx, w.poke, wakeAt)
		}
	}
	if w.phase == pod.PhaseGone {
		w.agent.cfg.Images.Forget(w.uid)
		w.agent.cfg.Probes.Forget(w.uid)
		w.agent.cfg.Status.Forget(w.uid)
		w.agent.cfg.Events.Gone(w.uid)
		w.count(pod.Observed{})
	}
}

// round is one look at the pod and what follows from it. It says when to look
// again: at once, because something was done; at wakeAt; or, with both zero,
// when somebody wakes the worker.
func (w *worker) round(ctx context.Context) (wakeAt time.Time, again bool) {
	began := time.Now()
	in := w.take(began)
	ctx, done := w.interruptible(ctx, in)
	defer done()
	seen, err := w.agent.cfg.Observer.Observe(ctx, w.uid)
	if errors.Is(context.Cause(ctx), errEnded) {
		return time.Time{}, true
	}
	if err != nil {
		w.tellFailure(ctx, in.desired, "FailedSync", "error determining status: ", err)
		return w.failed(ctx, "look at the pod", err), false
	}
	v := w.decide(in, seen, began)
	step := &v.step
	w.adoptCgroup(ctx, v)
	w.report(v, nil)
	if step.Finished {
		if err := w.release(ctx, in.desired, seen); err != nil {
			return w.failed(ctx, "release what the pod has no use for", err), errors.Is(context.Cause(ctx), errEnded)
		}
	}
	if step.Idle() {
		w.tries = 0
		before := w.phase
		w.advance(step.Phase)
		w.agent.metrics.rounds.WithLabelValues(operation(in, w.phase)).Observe(time.Since(began).Seconds())
		return step.WakeAt, w.phase != before && w.phase > pod.PhaseRunning
	}
	did, err := w.apply(ctx, v)
	w.agent.metrics.rounds.WithLabelValues(operation(in, w.phase)).Observe(time.Since(began).Seconds())
	if errors.Is(context.Cause(ctx), errEnded) || errors.Is(err, errNews) {
		w.advance(step.Phase)
		return time.Time{}, true // whatever it came to, the next look tells
	}
	if err != nil {
		wakeAt = w.failed(ctx, "sync the pod", err)
		w.report(v, err)
		return earliest(wakeAt, step.WakeAt), false
	}
	w.advance(step.Phase)
	if did && w.stuck(in, seen) {
		return w.failed(ctx, "sync the pod", errNoEffect), false
	}
	w.tries = 0
	if !did { // containers that could not start: their waiting reasons are news
		w.report(v, nil)
	}
	return step.WakeAt, did
}

// view is what one round is about: what was wanted and seen, and what is to be
// done about it.
type view struct {
	in     mail
	seen   pod.Observed
	hooks  map[string]pod.Hook // by container ID
	probes pod.ProbeResults
	step   plan.Step
}

// decide takes a look's result in and asks plan what follows from it.
func (w *worker) decide(in mail, seen pod.Observed, now time.Time) *view {
	if in.retry {
		w.forgive()
	}
	in.desired = w.allocate(in, now)
	w.note(in.desired, seen, now)
	w.pruneStops(seen)
	v := &view{in: in, seen: seen, hooks: w.lookAtHooks(seen)}
	v.probes = w.probe(in.desired, seen, v.hooks, in.kill != nil || in.end != nil)
	v.step = plan.Next(plan.Input{
		Phase: w.phase, Desired: in.desired, Observed: seen, Kill: in.kill, End: in.end, Over: w.over, StartTime: w.since,
		Probes: v.probes, PostStart: v.hooks, Memory: w.memory, Policy: w.agent.cfg.BackOff, Now: now,
	})
	w.memory = v.step.Memory
	if !v.step.RestartingAll {
		w.restarting = time.Time{}
	} else if w.restarting.IsZero() {
		w.restarting = now
	}
	w.keepEnd(in.desired, v.step.End)
	w.keepOver(v)
	w.tellOverdue(v, now)
	w.finish(v.step.Finished)
	w.settleResize(v, now)
	w.tellBackOff(in.desired, seen, &v.step)
	return v
}

// release gives back, once each time it comes to its end (a create thought lost
// may come true after the first), what a pod that is over needs no more: its
// network, which a sandbox that died by itself holds until it is stopped, its
// mounts, and its cgroup with its share of its class' weight. What stays goes with
// the pod, but a network is others' too: an error asks for another try.
func (w *worker) release(ctx context.Context, d *pod.Desired, seen pod.Observed) error {
	if w.released {
		return nil
	}
	err := each(seen.Sandboxes, func(sb pod.Sandbox) error {
		return ignoreNotFound(w.agent.cfg.Sandboxes.StopSandbox(ctx, sb.ID))
	})
	w.released, w.mounted = err == nil, false
	if err := w.agent.cfg.Volumes.Release(ctx, w.uid); err != nil && ctx.Err() == nil {
		w.log.Warn("volumes of a pod that has run to its end stay mounted until it is removed", "error", err)
	}
	if err := w.agent.cfg.Cgroups.RemoveCgroup(ctx, d.Pod); err != nil && ctx.Err() == nil {
		w.log.Warn("the cgroup of a pod that has run to its end stays until it is removed", "error", err)
	}
	if err != nil {
		return fmt.Errorf("release the network of a dead sandbox: %w", err)
	}
	return nil
}

func (w *worker) advance(next pod.Phase) {
	if err := w.phase.Advance(next); err != nil {
		panic(err) // plan.Next's table test walks every phase and input
	}
}

var errNoEffect = errors.New("the runtime took the calls, but what it says of the pod did not change")

// stuck says whether this round acted on the very sight that the last one had
// acted on: its calls had no effect, and more of them in a hurry will not help.
func (w *worker) stuck(in mail, seen pod.Observed) bool {
	seen.At = time.Time{}
	last := w.acted
	w.acted = acted{seen: seen, kill: in.kill, phase: w.phase}
	return last.phase == w.phase && last.kill == in.kill && reflect.DeepEqual(last.seen, seen)
}

// acted is what a round that changed the runtime was based on.
type acted struct {
	seen  pod.Observed
	kill  *plan.Kill
	phase pod.Phase
}

// failed notes a round that went wrong and says when to try again.
func (w *worker) failed(ctx context.Context, doing string, err error) time.Time {
	if ctx.Err() != nil {
		return time.Time{}
	}
	delay := retryDelay(w.tries)
	if r, ok := errors.AsType[*pod.RetryAfter](err); ok {
		delay = r.Delay
	}
	w.tries++
	w.agent.metrics.syncErrors.Inc()
	level := slog.LevelWarn
	text := err.Error()
	if _, told := errors.AsType[toldError](err); told || w.told.err == text {
		level = slog.LevelDebug // said once, until it changes
	}
	w.told.err = text
	w.log.Log(ctx, level, "pod sync error", "doing", doing, "error", err, "retry_in", delay)
	return time.Now().Add(delay)
}

// toldError is an error that an event has told of already.
type toldError struct{ error }

func (e toldError) Unwrap() error { return e.error }

// retryDelay is 250 ms doubling to 10 s.
func retryDelay(try int) time.Duration {
	return min(250*time.Millisecond<<min(try, 10), 10*time.Second)
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func sortBySeen(list []*pod.Desired) {
	slices.SortStableFunc(list, func(a, b *pod.Desired) int {
		if c := a.Seen.Compare(b.Seen); c != 0 {
			return c
		}
		return strings.Compare(a.Name(), b.Name())
	})
}
