package agent

import (
	"context"
	"time"

	"podd/agent/plan"
	"podd/internal/pod"
)

// startMissing starts workers for desired pods that have none and may have one.
func (a *Agent) startMissing(ctx context.Context, missing []*pod.Desired) {
	reserved := a.reservedNames(missing)
	candidates := make([]plan.Candidate, len(missing))
	for i, d := range missing {
		candidates[i] = a.candidate(d)
	}
	plan.StartOrder(candidates)
	defer func() { a.admissionDue = false }()
	for _, c := range candidates {
		if reserved[c.Desired.Name()] {
			continue
		}
		if !c.Runs && a.holdsStarts() {
			a.hold(c)
			continue
		}
		reserved[c.Desired.Name()] = true
		a.admissionMu.Lock()
		if a.admits(c) {
			a.startWorker(ctx, c.Desired, "")
		}
		a.admissionMu.Unlock()
	}
}

// delete requests the termination, with the given grace period, of a pod that its source
// still lists; a later request may shorten the grace period. If the pod has no worker,
// one is started for that (terminateDeleted), once.
func (a *Agent) delete(d *pod.Desired) {
	if done, known := a.deleted[d.UID()]; !known || done != nil {
		a.deleted[d.UID()] = d
	}
	a.mu.Lock()
	w := a.workers[d.UID()]
	a.mu.Unlock()
	if w != nil {
		w.update(d)
		w.terminateWithin(plan.GracePeriod(d.Pod), "its deletion was requested")
	}
}

// reservedNames are the namespace/names that no pod may be started with now: a worker has
// them, or a running pod that may turn out to be orphaned.
func (a *Agent) reservedNames(of []*pod.Desired) map[string]bool {
	reserved := make(map[string]bool, len(of))
	for _, d := range of {
		reserved[d.Name()] = false
	}
	reserve := func(name string) {
		if _, asked := reserved[name]; asked {
			reserved[name] = true
		}
	}
	a.mu.Lock()
	for _, w := range a.workers {
		reserve(w.name)
	}
	a.mu.Unlock()
	for uid, g := range a.orphans {
		if a.desired[uid] == nil {
			reserve(g.Namespace + "/" + g.Name)
		}
	}
	return reserved
}

// Expects says whether a pod that has no status yet may exist: not all pods are known, or
// its worker has not looked at it. Any goroutine may call it.
func (a *Agent) Expects(namespace, name string) bool {
	full := namespace + "/" + name
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.allKnown {
		return true
	}
	for _, w := range a.workers {
		if w.name == full {
			return true
		}
	}
	return false
}

// Surveyed says whether podd has looked at every pod that existed when it started: each one has
// a status, or could not be observed. Before that, a pod without a status may still exist. Any
// goroutine may call it.
func (a *Agent) Surveyed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.surveyed || !a.allKnown {
		return a.surveyed
	}
	for _, w := range a.workers {
		if !w.looked.Load() {
			return false
		}
	}
	a.surveyed = true
	return true
}

// startWorker starts a worker. For a pod that is not desired, the worker terminates it, and
// unwanted says why.
func (a *Agent) startWorker(ctx context.Context, d *pod.Desired, unwanted string) {
	w := newWorker(a, d)
	_, interrupted := a.interruptions.get(d.UID())
	switch {
	case unwanted != "":
		w.terminate(unwanted)
	case interrupted && !w.completion.reached && w.mail.End == nil:
		w.terminate(whyInterruptedByShutdown)
	default:
		a.metrics.starts.workerStarted(d)
	}
	delete(a.orphans, d.UID())
	delete(a.lastDesired, d.UID())
	a.mu.Lock()
	a.workers[d.UID()] = w
	delete(a.foreign, d.UID())
	a.mu.Unlock()
	a.wg.Go(func() {
		w.run(ctx)
		select {
		case a.workerDone <- w:
		case <-ctx.Done():
		}
	})
}

// forget drops a worker that has returned, which frees its name. A wake-up that came
// after its last sync is not lost.
func (a *Agent) forget(w *worker) {
	a.mu.Lock()
	delete(a.workers, w.uid)
	a.mu.Unlock()
	a.released.Notify()
	if a.deleted[w.uid] != nil {
		a.deleted[w.uid] = nil
	}
	if d := a.desired[w.uid]; d != nil {
		a.metrics.restarted.WithLabelValues(static(d.Source != pod.SourceAPIServer)).Inc()
	}
	a.admissionDue = true
	a.wakeDeferred(triggerPodsRemoved)
	a.RecheckLeftovers()
	select {
	case <-w.poke:
		a.Wake(w.uid, time.Time{})
	default:
	}
}
