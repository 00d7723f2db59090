package agent

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/allocation"
	"podd/agent/plan"
	"podd/internal/pod"
)

// worker runs and terminates one generation of one pod. Its goroutine is run; others
// only leave something in its mailbox.
type worker struct {
	agent *Agent
	uid   pod.UID
	name  string
	log   *slog.Logger
	poke  chan struct{}
	// order is poked, too, for requests that are never delayed: a new spec of the
	// pod, its termination, or a retry.
	order chan struct{}

	mu         sync.Mutex // guards what follows
	mail       mail
	interrupt  context.CancelCauseFunc // cancels the sync in progress; nil for none
	postStarts map[string]*postStart   // by container ID
	preStopped map[string]bool         // hooks that have started, by container ID
	finished   bool                    // the pod has completed
	deferred   bool                    // a resize waits for room
	heeding    bool                    // a change of the pod's objects is to be looked at
	// allocation has the allocated resources; only run's goroutine changes it, and
	// may read it without the lock.
	allocation allocation.Allocation

	// What follows belongs to run's goroutine.
	phase     pod.Phase
	memory    plan.Memory
	startTime time.Time
	since     time.Time // the same on the monotonic clock
	over      bool      // the pod has completed, now or before
	kept      kept      // the checkpoint of that
	named     *v1.Pod   // whose objects are registered; nil for none
	mounted   bool      // the volumes are ready
	unmounted string    // what the pod waits for until then
	released  bool      // network, volumes and cgroup of a completed pod are released
	created   bool      // this podd created a sandbox
	leave     func()    // frees the slot among the sandboxes being started; nil for none
	// sandbox has the inputs of the pod's newest sandbox; nil until computed.
	sandbox *pod.SandboxInputs
	tries   int // syncs in a row that failed
	acted   acted
	told    told
	counted counted
	stops   map[string]*stopping // by container ID
	stopped chan struct{}        // poked when one of them is over
	adopted bool                 // the cgroup of a pod of an earlier podd is up to date
	// checkpointed is the allocation when the checkpoint was last compared.
	checkpointed *pod.Desired
	// restartsCounted: the restart counts were read from the logs.
	restartsCounted bool
	// spawn runs what goes on outside the syncs; it ends with the worker, or when its
	// function is called.
	spawn   func(func(context.Context)) context.CancelFunc
	unwatch context.CancelFunc // ends the watch over the pod's limits; nil for none
	// imageSince is when the start began to wait for an image, pulling what earlier
	// waits took.
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

// deafness is the longest time after a failed sync in which events do not wake the
// worker: the calls of such a sync cause some, and each would start the next one.
// Orders do wake it.
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
		w.heedObjects()
		if w.tries > 0 {
			wait(ctx, w.order, earliest(wakeAt, time.Now().Add(deafness)))
		}
		if !again {
			wait(ctx, w.poke, wakeAt)
		}
	}
	w.agent.cfg.Objects.Unregister(w.uid)
	if w.phase == pod.PhaseGone {
		w.agent.cfg.Images.Forget(w.uid)
		w.agent.cfg.Probes.Forget(w.uid)
		w.agent.cfg.Status.Forget(w.uid)
		w.agent.cfg.Events.Gone(w.uid)
		w.count(pod.Observed{})
	}
}

// sync observes the pod, decides and acts, once. It returns when to sync again: at
// once, because something was done; at wakeAt; or, with both zero, when the worker is
// woken.
func (w *worker) sync(ctx context.Context) (wakeAt time.Time, again bool) {
	began := time.Now()
	in := w.take(began)
	w.registerObjects(in.desired)
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
	w.followVolumes(v)
	w.watchLimits(v)
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
		return time.Time{}, true // the next sync observes the result
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
	if !did { // for the waiting reasons of containers that could not start
		w.report(v, nil)
	}
	return v.wakeAt, did
}

// view is what one sync is about: what is desired (in), allocated and observed, and
// what is to be done.
type view struct {
	in mail
	// granted is in.desired with the allocated resources: how the pod is to run.
	granted *pod.Desired
	seen    pod.Observed
	hooks   map[string]pod.Hook // by container ID
	probes  pod.ProbeResults
	// step is the decision; nothing changes it afterwards.
	step plan.Step
	// wakeAt is the step's, or earlier if carrying it out requires that; zero for
	// never.
	wakeAt time.Time
}

// wakeBy has the pod synced again at t at the latest; zero for never.
func (v *view) wakeBy(t time.Time) { v.wakeAt = earliest(v.wakeAt, t) }

// decide takes in what was observed and returns plan's decision.
func (w *worker) decide(in mail, seen pod.Observed, now time.Time) *view {
	if in.retry {
		w.forgive()
	}
	if in.objects {
		w.memory = w.memory.ObjectsChanged()
	}
	v := &view{in: in, granted: w.allocate(in, now), seen: seen}
	w.note(v.granted, seen, now)
	w.pruneStops(seen)
	v.hooks = w.observeHooks(seen)
	v.probes = w.probe(v.granted, seen, v.hooks, in.Kill != nil || in.End != nil)
	v.step = w.plan(v, now)
	if v.step.Creates() && w.countRestarts(v.granted) {
		v.step = w.plan(v, now)
	}
	w.memory, v.wakeAt = v.step.Memory, v.step.WakeAt
	w.tellChange(v)
	if v.step.RetryPulls {
		w.agent.cfg.Images.Retry(w.uid)
	}
	w.keepEnd(v.granted, v.step.End)
	w.keepOver(v)
	w.tellOverdue(v)
	w.finish(v.step.Finished)
	w.settleResize(v)
	w.tellBackOff(v.granted, seen, &v.step)
	return v
}

// plan returns what is to be done.
func (w *worker) plan(v *view, now time.Time) plan.Step {
	return plan.Next(plan.Input{
		Phase: w.phase, Granted: v.granted, Observed: v.seen, Kill: v.in.Kill, End: v.in.End, Over: w.over, StartTime: w.since,
		Probes: v.probes, Contents: w.contents(v.granted), Epoch: w.agent.cfg.Objects.Epoch(), PostStart: v.hooks, AskAt: w.allocation.RetryAt, Memory: w.memory, Policy: w.agent.cfg.BackOff, Now: now,
	})
}

// countRestarts reads, once in the worker's life and before it creates a container,
// the restart counts of lost containers from the logs; news says that it did.
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

// release releases what a completed pod no longer needs, once each time it completes
// (a create that seemed lost may succeed after the first). The rest is removed with
// the pod.
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

// stuck says whether this sync acted on the same state as the last one: the calls had
// no effect, and repeating them at once will not help.
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

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
