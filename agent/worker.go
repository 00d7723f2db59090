package agent

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"podd/agent/allocation"
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
	interrupt  context.CancelCauseFunc // ends the sync that is under way; nil for none
	postStarts map[string]*postStart   // by container ID
	preStopped map[string]bool         // hooks that were begun, by container ID
	finished   bool                    // the pod has completed
	deferred   bool                    // a resize waits for room
	// allocation is what the node granted; run's goroutine alone changes it, and may
	// read it without the lock.
	allocation allocation.Allocation

	// What follows belongs to run's goroutine alone.
	phase     pod.Phase
	memory    plan.Memory
	startTime time.Time
	since     time.Time // the same on podd's own clock
	over      bool      // the pod has completed, now or before
	kept      kept      // and what is remembered of that
	mounted   bool      // the volumes are ready
	unmounted string    // what is waited for, while they are not
	released  bool      // network, volumes and cgroup of a pod that has completed
	created   bool      // this podd made a sandbox
	leave     func()    // gives a place among the sandboxes being started back; nil for none
	// sandbox is what the pod's newest sandbox rests on; nil until it is computed.
	sandbox *pod.SandboxInputs
	tries   int // syncs in a row that ended in an error
	acted   acted
	told    told
	counted counted
	stops   map[string]*stopping // by container ID
	stopped chan struct{}        // poked when one of them comes to its end
	adopted bool                 // the cgroup of a pod that an earlier podd started is up to date
	// checkpointed is what was granted when the checkpoint was last compared.
	checkpointed *pod.Desired
	// restartsCounted says that the logs were asked for restart counts.
	restartsCounted bool
	// spawn runs what goes on beside the syncs; it ends with the worker, or
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
		allocation: a.restored(d),
		told:       told{states: make(map[string]pod.ContainerState)},
		postStarts: make(map[string]*postStart),
		preStopped: make(map[string]bool),
		stops:      make(map[string]*stopping),
		stopped:    make(chan struct{}, 1),
	}
	if granted := w.allocation.Granted; granted != nil {
		w.memory.Before = granted.Pod
	}
	if k, ended := a.ends.of(d.UID()); ended {
		w.startTime = k.StartTime
		if k.Reason != "" {
			w.mail.End = &k.End
		} else {
			w.over, w.kept, w.told.over = true, k, true
		}
	}
	return w
}

// deafness is the longest time after a sync that went wrong in which no event
// wakes the worker: such a sync's own calls cause some, and each would start
// the next one. Orders are heard.
const deafness = time.Second

// run observes, decides and acts until the pod is removed or ctx ends.
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
		wakeAt, again := w.sync(ctx)
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

// sync observes the pod, decides and acts, once. It returns when to sync again: at
// once, because something was done; at wakeAt; or, with both zero, when somebody
// wakes the worker.
func (w *worker) sync(ctx context.Context) (wakeAt time.Time, again bool) {
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
		return w.failed(ctx, "observe the pod", err), false
	}
	w.agent.cfg.Logs.Link(seen)
	v := w.decide(in, seen, began)
	step := &v.step
	w.adoptCgroup(ctx, v)
	w.report(v, nil)
	if step.Finished {
		if err := w.release(ctx, v); err != nil {
			return w.failed(ctx, "release what the completed pod no longer needs", err), errors.Is(context.Cause(ctx), errEnded)
		}
	}
	if step.Idle() {
		w.tries = 0
		before := w.phase
		w.advance(step.Phase)
		w.agent.metrics.syncs.WithLabelValues(operation(in, w.phase)).Observe(time.Since(began).Seconds())
		return v.wakeAt, w.phase != before && w.phase > pod.PhaseRunning
	}
	did, err := w.apply(ctx, v)
	w.agent.metrics.syncs.WithLabelValues(operation(in, w.phase)).Observe(time.Since(began).Seconds())
	if errors.Is(context.Cause(ctx), errEnded) || errors.Is(err, errNews) {
		w.advance(step.Phase)
		return time.Time{}, true // whatever it came to, the next sync tells
	}
	if err != nil {
		wakeAt = w.failed(ctx, "sync the pod", err)
		w.report(v, err)
		return earliest(wakeAt, v.wakeAt), false
	}
	w.advance(step.Phase)
	if did && w.stuck(in, seen) {
		return w.failed(ctx, "sync the pod", errNoEffect), false
	}
	w.tries = 0
	if !did { // containers that could not start: their waiting reasons are news
		w.report(v, nil)
	}
	return v.wakeAt, did
}

// view is what one sync is about: what is desired (in), granted and seen, and
// what is to be done about it.
type view struct {
	in mail
	// granted is in.desired with the resources that the node granted: what the pod is
	// made like.
	granted *pod.Desired
	seen    pod.Observed
	hooks   map[string]pod.Hook // by container ID
	probes  pod.ProbeResults
	// step is what was decided; nothing changes it afterwards.
	step plan.Step
	// wakeAt is the step's, or sooner, for what was learnt as it was carried out;
	// zero for never.
	wakeAt time.Time
}

// wakeBy has the pod synced again at t, if not sooner; zero for never.
func (v *view) wakeBy(t time.Time) { v.wakeAt = earliest(v.wakeAt, t) }

// decide takes in what was observed and asks plan what follows from it.
func (w *worker) decide(in mail, seen pod.Observed, now time.Time) *view {
	if in.retry {
		w.forgive()
	}
	v := &view{in: in, granted: w.allocate(in, now), seen: seen}
	w.note(v.granted, seen, now)
	w.pruneStops(seen)
	v.hooks = w.lookAtHooks(seen)
	v.probes = w.probe(v.granted, seen, v.hooks, in.Kill != nil || in.End != nil)
	v.step = w.plan(v, now)
	if v.step.Creates() && w.countRestarts(v.granted) {
		v.step = w.plan(v, now)
	}
	w.memory, v.wakeAt = v.step.Memory, v.step.WakeAt
	w.keepEnd(v.granted, v.step.End)
	w.keepOver(v)
	w.tellOverdue(v)
	w.finish(v.step.Finished)
	w.settleResize(v)
	w.tellBackOff(v.granted, seen, &v.step)
	return v
}

// plan asks what is to be done.
func (w *worker) plan(v *view, now time.Time) plan.Step {
	return plan.Next(plan.Input{
		Phase: w.phase, Granted: v.granted, Observed: v.seen, Kill: v.in.Kill, End: v.in.End, Over: w.over, StartTime: w.since,
		Probes: v.probes, PostStart: v.hooks, AskAt: w.allocation.RetryAt, Memory: w.memory, Policy: w.agent.cfg.BackOff, Now: now,
	})
}

// countRestarts takes in, once in the worker's life and before it makes a
// container, what logs tell of those that the runtime has lost; news says that it
// did.
func (w *worker) countRestarts(d *pod.Desired) (news bool) {
	if w.restartsCounted {
		return false
	}
	counts, err := w.agent.cfg.Logs.RestartCounts(d.Pod)
	if err != nil {
		w.log.Warn("cannot list earlier logs of a container: its restart count may start over", "error", err)
	}
	w.restartsCounted = err == nil
	w.memory = w.memory.AtLeast(counts)
	return len(counts) > 0
}

// release gives back, once each time it comes to its end (a create thought lost
// may come true after the first), what a pod that is over needs no more. What stays
// goes with the pod.
func (w *worker) release(ctx context.Context, v *view) error {
	if w.released {
		return nil
	}
	err := w.setup(v).release(ctx)
	w.released = err == nil
	return err
}

func (w *worker) advance(next pod.Phase) {
	if err := w.phase.Advance(next); err != nil {
		panic(err) // plan.Next's table test walks every phase and input
	}
}

var errNoEffect = errors.New("the runtime accepted the calls, but the pod's state has not changed")

// stuck says whether this sync acted on the same state as the last one did: the
// calls had no effect, and repeating them at once will not help.
func (w *worker) stuck(in mail, seen pod.Observed) bool {
	seen.At = time.Time{}
	last := w.acted
	w.acted = acted{seen: seen, kill: in.Kill, phase: w.phase}
	return last.phase == w.phase && last.kill == in.Kill && reflect.DeepEqual(last.seen, seen)
}

// acted is what a sync that changed the runtime was based on.
type acted struct {
	seen  pod.Observed
	kill  *plan.Kill
	phase pod.Phase
}

// failed notes a sync that went wrong and says when to try again.
func (w *worker) failed(ctx context.Context, doing string, err error) time.Time {
	if ctx.Err() != nil {
		return time.Time{}
	}
	delay := retryDelay(w.tries)
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
