package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"podd/agent/plan"
	"podd/internal/pod"
)

// sync observes the pod, decides and acts, once. It returns when to sync again: at
// once, because something was done; at wakeAt; or, with both zero, when the worker is
// woken.
func (w *worker) sync(ctx context.Context) (wakeAt time.Time, again bool) {
	began := time.Now()
	in := w.takeMail(began)
	if in.Kill == nil || w.stored.registered != nil { // a pod that only ends needs none
		w.registerObjects(in.desired)
	}
	w.checkFeatures(in.desired)
	ctx, done := w.interruptible(ctx, in)
	defer done()
	seen, err := w.agent.cfg.Observer.Observe(ctx, w.uid)
	if errors.Is(context.Cause(ctx), errTerminating) {
		return time.Time{}, true
	}
	if err != nil {
		w.recordFailure(ctx, in.desired, "FailedSync", "error determining status: ", err)
		return w.failed(ctx, "observe the pod", err), false
	}
	w.agent.cfg.Logs.Link(seen)
	v := w.decide(in, seen, began)
	if w.beginShutdown(v) {
		return time.Time{}, true
	}
	w.saveAccepted(v)
	w.adoptCgroup(ctx, v)
	w.followVolumes(v)
	w.watchLimits(v)
	if err := w.unprepareClaims(ctx, v); err != nil {
		return w.failed(ctx, "unprepare the claims of the pod", err), errors.Is(context.Cause(ctx), errTerminating)
	}
	w.report(v, nil)
	w.looked.Store(true)
	if v.step.Finished {
		if err := w.release(ctx, v); err != nil {
			return w.failed(ctx, "release what the completed pod no longer needs", err), errors.Is(context.Cause(ctx), errTerminating)
		}
	}
	if v.step.Idle() {
		before := w.phase
		if err := w.advance(v); err != nil {
			return w.impossible(ctx, v, err), false
		}
		w.lastSync.failures = 0
		w.observeSync(v, began)
		return v.wakeAt, w.phase != before && w.phase > pod.PhaseRunning
	}
	did, err := w.apply(ctx, v)
	w.observeSync(v, began)
	return w.applied(ctx, v, did, err)
}

// applied concludes a sync that performed a step; did and err are those of apply.
func (w *worker) applied(ctx context.Context, v *view, did bool, err error) (wakeAt time.Time, again bool) {
	if errors.Is(context.Cause(ctx), errTerminating) || errors.Is(err, errPodChanged) {
		if err := w.advance(v); err != nil {
			return w.impossible(context.WithoutCancel(ctx), v, err), false
		}
		return time.Time{}, true // the next sync observes the result
	}
	if err != nil {
		wakeAt = w.failed(ctx, "sync the pod", err)
		w.report(v, err)
		return earliest(wakeAt, v.wakeAt), false
	}
	if err := w.advance(v); err != nil {
		return w.impossible(ctx, v, err), false
	}
	if did && w.stuck(v.in, v.seen) {
		return w.failed(ctx, "sync the pod", errNoEffect), false
	}
	w.lastSync.failures = 0
	if !did { // for the waiting reasons of containers that could not start
		w.report(v, nil)
	}
	return v.wakeAt, did
}

// observeSync measures a sync that began then.
func (w *worker) observeSync(v *view, began time.Time) {
	w.agent.metrics.syncs.WithLabelValues(operation(v.in, w.phase)).Observe(time.Since(began).Seconds())
}

// view is what one sync is about: what is desired (in), allocated and observed, and what
// to do.
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
		w.resetBackoff()
		w.completion.rerun = w.completion.rerun || w.completion.reached || in.End != nil
	}
	w.completion.reached = w.completion.reached || in.completedElsewhere
	if in.objectsChanged {
		w.memory = w.memory.ObjectsChanged()
	}
	v := &view{in: in, granted: w.allocate(in, now), seen: seen}
	w.trackObserved(v.granted, seen, now)
	w.pruneStops(seen)
	w.resumeStarts(v)
	w.requestRestarts(in, v.granted, seen, now)
	v.hooks = w.observeHooks(seen)
	v.probes = w.probe(v.granted, seen, v.hooks, in.Kill != nil || in.End != nil)
	v.step = w.plan(v, now)
	if w.grantEarlyRestarts(v.step.EarlyRestarts) {
		v.step = w.plan(v, now)
	}
	if v.step.Creates() && w.countRestarts(v.granted) {
		v.step = w.plan(v, now)
	}
	w.memory, v.wakeAt = v.step.Memory, v.step.WakeAt
	w.recordObjectChange(v)
	if v.step.RetryPulls {
		w.agent.cfg.Images.Retry(w.uid)
	}
	w.saveEnd(v.granted, v.step.End)
	w.saveCompletion(v)
	w.recordOverdue(v)
	w.finish(v.step.Finished)
	w.runAgain(v)
	w.settleResize(v)
	w.recordBackOff(v.granted, seen, &v.step)
	return v
}

// plan returns what to do.
func (w *worker) plan(v *view, now time.Time) plan.Step {
	return plan.Next(plan.Input{
		Phase: w.phase, Granted: v.granted, Observed: v.seen, Kill: v.in.Kill, End: v.in.End, Completed: w.completion.reached, StartTime: w.startTimeSteady,
		Probes: v.probes, Contents: w.contents(v.granted), Epoch: w.agent.cfg.Objects.Epoch(), PostStart: v.hooks, PendingStarts: w.starting.pendingStarts, AdmitResizeAt: w.allocation.RetryAt, Memory: w.memory, MemoryQoS: w.agent.cfg.MemoryQoS, Policy: w.agent.cfg.BackOff, Now: now,
	})
}

// countRestarts reads, once in the worker's life and before it creates a container,
// the restart counts of lost containers from the logs; found says that there are any.
func (w *worker) countRestarts(d *pod.Desired) (found bool) {
	if w.stored.restartsCounted {
		return false
	}
	counts, err := w.agent.cfg.Logs.RestartCounts(d.Pod)
	if err != nil {
		w.log.Warn("cannot list earlier logs of a container: its restart count may start over", "error", err)
	}
	w.stored.restartsCounted = err == nil
	w.memory = w.memory.WithRestartCounts(counts)
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
	w.mu.Lock()
	w.released = err == nil
	w.mu.Unlock()
	w.agent.released.Notify()
	return err
}

// advance moves to the step's phase.
func (w *worker) advance(v *view) error {
	err := w.phase.Advance(v.step.Phase)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached = w.phase
	return err
}

// impossible ends a sync if its step goes back in the pod's life. That is an error in podd:
// plan.Next's table test walks every phase and input. It concerns this pod alone, and is shown
// for it; the other pods go on. The worker stays, since nobody else would end the pod's
// containers, and tries again with a back-off.
func (w *worker) impossible(ctx context.Context, v *view, err error) time.Time {
	err = fmt.Errorf("podd's plan for the pod is impossible, please report this: %w", err)
	w.recordFailure(ctx, v.granted, "FailedSync", "error syncing pod: ", err)
	wakeAt := w.failed(ctx, "sync the pod", err)
	w.report(v, err)
	return earliest(wakeAt, v.wakeAt)
}

var errNoEffect = errors.New("the runtime accepted the calls, but the pod's state has not changed")

// stuck says whether this sync acted on the same state as the last one: the calls had
// no effect, and repeating them at once will not help.
func (w *worker) stuck(in mail, seen pod.Observed) bool {
	seen.At = time.Time{}
	last := w.lastSync
	w.lastSync.seen, w.lastSync.kill, w.lastSync.phase = seen, in.Kill, w.phase
	return last.phase == w.phase && last.kill == in.Kill && reflect.DeepEqual(last.seen, seen)
}

// syncResult is how the last syncs went.
type syncResult struct {
	failures int // in a row
	// What follows is what the last sync that changed the runtime was based on.
	seen  pod.Observed
	kill  *plan.Kill
	phase pod.Phase
}
