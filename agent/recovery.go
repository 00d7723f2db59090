package agent

import (
	"context"
	"maps"
	"time"

	"podd/internal/pod"
	"podd/internal/wake"
)

// recovery is the result of recover: the parts for running pods, and these;
// or why that is not known yet.
type recovery struct {
	parts   Parts
	orphans []orphan
	err     error
}

// recover lists the running pods, and retries until that succeeds.
func (a *Agent) recover(ctx context.Context, out chan<- recovery) {
	for try := 0; ctx.Err() == nil; try++ {
		asked := time.Now()
		r := a.find(ctx)
		select {
		case out <- r:
		case <-ctx.Done():
			return
		}
		if r.err == nil {
			return
		}
		delay := min(retryDelay(try), time.Second)
		if try%60 == 1 { // one failure is a runtime that has only just begun to listen
			a.log.Warn("waiting for the runtime to list its pods", "error", r.err, "retry_in", delay)
		}
		wake.Sleep(ctx, delay-time.Since(asked)) // after a long wait for a response, retry at once
	}
}

// find tries once.
func (a *Agent) find(ctx context.Context) (r recovery) {
	r.parts = a.cfg.Parts
	if a.cfg.AwaitRuntime != nil {
		if r.parts, r.err = a.cfg.AwaitRuntime(ctx); r.err != nil {
			return r
		}
	}
	summaries, err := r.parts.Observer.Summaries(ctx)
	if r.err = err; err != nil {
		return r
	}
	for _, g := range summaries {
		r.orphans = append(r.orphans, a.orphanOf(g))
	}
	return r
}

// handleRecovery takes in the result of recover. The parts were not used before.
func (a *Agent) handleRecovery(r recovery) {
	a.runtimeErr = r.err
	if r.err != nil {
		return
	}
	a.recovered, a.cfg.Parts = true, r.parts.withDefaults()
	for _, o := range r.orphans {
		a.orphans[o.UID] = o
	}
	maps.DeleteFunc(a.lastDesired, func(uid pod.UID, _ *pod.Desired) bool { _, runs := a.orphans[uid]; return !runs })
	a.log.Info("runtime answered", "pods_found", len(r.orphans))
	a.notifyUnknown() // woken while nothing was known
}

// reportRuntimeDown reports pods that wait for a runtime that has never responded. podd only
// knows that they are desired, and which of them have completed.
func (a *Agent) reportRuntimeDown() {
	if a.runtimeErr == nil {
		return
	}
	now := time.Now()
	for _, d := range a.desired {
		r := pod.Report{Desired: d, Observed: pod.Observed{UID: d.UID(), At: now}, At: now}
		if k, ended := a.endedBefore(d); ended {
			r.Observed, r.StartTime = k.addLostContainers(r.Observed), k.StartTime
			r.Failed, r.Reason, r.Message = k.Reason != "", k.Reason, k.Message
		} else {
			r.NotObserved, r.Waiting = true, waitingAll(d.Pod, a.runtimeErr.Error())
		}
		a.cfg.Status.Report(r)
	}
}

// terminateOrphans terminates running pods that are not desired, as soon as their source is
// ready; desired ones are adopted by their workers.
func (a *Agent) terminateOrphans(ctx context.Context) {
	for uid, o := range a.orphans {
		if a.desired[uid] == nil && a.mayTerminate(o.Source) {
			d := a.lastKnown(uid, o)
			if len(d.Pod.Spec.Containers) == 0 && len(o.Containers) > 0 {
				a.log.Warn("the spec of a pod without a manifest is not stored: preStop hooks that the runtime's annotations do not have are not run, and its ports and resources do not count",
					"pod", d.Name(), "uid", uid)
			}
			if !o.rejected {
				a.metrics.orphaned.Inc()
			}
			a.startWorker(ctx, d, "no manifest describes it")
		}
	}
}

// terminateDeleted starts a worker for each pod that has none and has a deletion request. The
// worker removes everything that the pod has on the node; the pod's source waits for
// that. Most of these pods never ran here, or ran before podd was restarted.
func (a *Agent) terminateDeleted(ctx context.Context) {
	for uid, d := range a.deleted {
		if d == nil {
			continue // the node has nothing left of it
		}
		a.mu.Lock()
		known := a.workers[uid] != nil
		a.mu.Unlock()
		if !known {
			a.startWorker(ctx, d, "its deletion was requested")
		}
	}
}

// mayTerminate says whether it is certain that a source does not desire a pod.
func (a *Agent) mayTerminate(s pod.Source) bool {
	configured := false
	all := true
	for _, known := range a.cfg.Sources {
		configured = configured || known == s
		all = all && a.ready[known]
	}
	if configured {
		return a.ready[s]
	}
	return all
}

// identifyUnknown identifies pods that were woken and have no worker. Usually the pod was
// just removed; sometimes its sandbox was created after its worker had returned. A pod
// that is being looked up stays unknown until the lookup has ended, because its result
// may be older than the wake-up.
func (a *Agent) identifyUnknown(ctx context.Context) {
	if !a.recovered {
		return // the result may be older than the wake-up
	}
	a.mu.Lock()
	var uids []pod.UID
	for uid := range a.unknown {
		if a.lookups[uid] {
			continue
		}
		delete(a.unknown, uid)
		if a.workers[uid] == nil {
			a.lookups[uid] = true
			uids = append(uids, uid)
		}
	}
	a.mu.Unlock()
	if len(uids) > 0 {
		a.wg.Go(func() { a.identify(ctx, uids) })
	}
}

// identify observes pods without a worker and passes podd's own to the sync loop.
// Those that could not be observed stay unknown and are retried.
func (a *Agent) identify(ctx context.Context, uids []pod.UID) {
	again := false
	for _, uid := range uids {
		seen, err := a.cfg.Observer.Lookup(ctx, uid)
		a.lookedUp(uid, seen, err)
		again = again || err != nil
		if err != nil || seen.StartTime.IsZero() {
			continue // retried, gone, or another agent's
		}
		g := pod.Summary{UID: uid, Name: seen.Name, Namespace: seen.Namespace, Source: seen.Source}
		select {
		case a.strays <- a.orphanOf(g):
		case <-ctx.Done():
			return
		}
	}
	if again {
		wake.Sleep(ctx, unknownRetry)
		a.notifyUnknown()
	}
}

// lookedUp records the result of a pod's lookup. A pod of another agent is not looked up
// again, even if it was woken meanwhile.
func (a *Agent) lookedUp(uid pod.UID, seen pod.Observed, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.lookups, uid)
	switch {
	case err != nil:
		a.unknown[uid] = true
	case seen.StartTime.IsZero() && (!seen.Empty() || seen.Foreign != ""):
		a.noteForeignLocked(uid)
		delete(a.unknown, uid)
	case a.unknown[uid]: // woken during the lookup
		a.notifyUnknown()
	}
}

// maxForeign bounds how many foreign pods are remembered.
const maxForeign = 4096

// noteForeignLocked records that a pod is not podd's, so that its events are ignored:
// another client of the runtime may start and stop many pods.
func (a *Agent) noteForeignLocked(uid pod.UID) {
	if len(a.foreign) >= maxForeign {
		clear(a.foreign)
	}
	a.foreign[uid] = a.workers[uid] == nil
}

// unknownRetry is the delay before observing pods again that the runtime would not
// show. Nothing waits for them.
const unknownRetry = 2 * time.Second

func (a *Agent) notifyUnknown() {
	a.unknownWoken.Notify()
}

// adoptStray starts a worker for a pod that the runtime has and that has none.
func (a *Agent) adoptStray(o orphan) {
	a.mu.Lock()
	known := a.workers[o.UID] != nil
	a.mu.Unlock()
	if !known {
		a.orphans[o.UID] = o
	}
}
