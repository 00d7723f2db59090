package agent

import (
	"context"
	"errors"
	"time"

	"podd/agent/plan"
	"podd/internal/pod"
)

// mail is what others have left for the worker: a slot for each kind, newest wins.
type mail struct {
	desired *pod.Desired
	plan.Termination
	// retry requests, once, a reset of the pod's back-off.
	retry bool
	// shutDownWithin requests, once, the pod's end for a shutdown of the machine; nil for none.
	shutDownWithin *time.Duration
	// restartAll requests, once, a restart of all containers; restartContainers are the names of
	// those that are to be restarted by themselves.
	restartAll        bool
	restartContainers []string
	// objectsChanged reports, once, that one of the pod's objects came, changed or went.
	objectsChanged bool
	// completedElsewhere reports, once, that somebody else ended the pod in the apiserver,
	// without a reason.
	completedElsewhere bool
	// resourcesFreed is the trigger of a retry of the deferred resize, until it is taken; empty
	// for none.
	resourcesFreed string
	// syncBegan is when the last sync began; an older hint is stale.
	syncBegan instant
}

// update leaves a newer spec of the same pod. A termination that began without a
// manifest goes on with the spec that the runtime kept: a manifest that is added
// again must not shorten the grace period.
func (w *worker) update(d *pod.Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	orphan := len(w.mail.desired.Pod.Spec.Containers) == 0
	if w.mail.desired == d || w.mail.Kill != nil && orphan {
		return
	}
	w.mail.desired = d
	w.wakeUrgentLocked()
	if k, ended := endedInAPI(d); ended && !w.finished && w.mail.Kill == nil && w.mail.End == nil {
		w.endedElsewhereLocked(k)
	}
}

// endedElsewhereLocked accepts that the apiserver shows a pod as ended although it has not
// ended here: whoever wrote that makes the pod's controller replace it. Podd writes such a
// status only once the pod has ended here.
func (w *worker) endedElsewhereLocked(k completionCheckpoint) {
	if k.Reason == "" {
		w.mail.completedElsewhere = true
		return
	}
	if next, changed := w.mail.WithEnd(k.Termination, time.Now()); changed {
		w.mail.Termination = next
		w.terminatingLocked()
	}
}

// setOrphan records whether the pod's source has stopped listing it.
func (w *worker) setOrphan(orphan bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orphan = orphan
}

// desired is the newest spec that was left for the worker.
func (w *worker) desired() *pod.Desired {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mail.desired
}

// terminate requests the pod's termination. It is never revoked; another request changes
// nothing, unless its grace period is shorter.
func (w *worker) terminate(why string) { w.terminateWithin(plan.GracePeriod(w.desired().Pod), why) }

func (w *worker) terminateWithin(grace time.Duration, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next, changed := w.mail.WithKill(plan.Kill{Grace: grace, Reason: why})
	if !changed {
		return
	}
	w.mail.Termination = next
	w.log.Info("stopping pod", "why", why, "grace", grace)
	w.terminatingLocked()
}

// terminatingLocked makes a decision to terminate the pod take effect at once: in the sync in
// progress, and in volumes, which must not miss objects that are removed with the pod.
func (w *worker) terminatingLocked() {
	if w.interrupt != nil {
		w.interrupt(errTerminating)
	}
	w.agent.cfg.Volumes.Stopping(w.uid)
	w.wakeUrgentLocked()
}

// errTerminating is the cause of interrupting a sync to terminate the pod.
var errTerminating = errors.New("the pod is being stopped")

// interruptible returns the context of a sync, which a request to terminate the pod
// cancels; syncs of a terminating pod are not interrupted.
func (w *worker) interruptible(ctx context.Context, in mail) (context.Context, func()) {
	if in.Kill != nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupt = cancel
	if w.mail.Kill != nil || w.mail.End != in.End {
		cancel(errTerminating)
	}
	return ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.interrupt = nil
		cancel(nil)
	}
}

func (w *worker) wake(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if stale(at, w.mail.syncBegan, instantOf(time.Now())) {
		return
	}
	w.wakeLocked()
}

// instant is a time on the wall clock, which may be set, and on a monotonic one.
type instant struct {
	wall   time.Time
	steady time.Duration
}

// monotonicOrigin is the origin of the monotonic clock; any time will do.
var monotonicOrigin = time.Now()

func instantOf(t time.Time) instant { return instant{wall: t.Round(0), steady: t.Sub(monotonicOrigin)} }

// hintSlack is how old a hint may be for its time to be trusted.
const hintSlack = 5 * time.Second

// stale says that a sync has observed what a hint is about: it happened before the
// sync began, by the wall clock, which the runtime shares. If that was set back since
// the sync by at least the age of the hint, this cannot be known, and the hint
// counts.
func stale(at time.Time, synced, now instant) bool {
	if at.IsZero() || synced.wall.IsZero() {
		return false
	}
	age := synced.wall.Sub(at)
	setBack := max((now.steady-synced.steady)-now.wall.Sub(synced.wall), 0)
	return age > setBack && age < hintSlack
}

func (w *worker) wakeLocked() {
	w.poke.Notify()
}

// wakeUrgentLocked is wakeLocked for requests that are not delayed after errors.
func (w *worker) wakeUrgentLocked() {
	w.urgent.Notify()
	w.wakeLocked()
}

// takeMail reads the mailbox. The sync that follows begins now and covers every wake-up so
// far.
func (w *worker) takeMail(now time.Time) mail {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mail.syncBegan = instantOf(now)
	for _, heard := range []chan struct{}{w.poke, w.urgent} {
		select {
		case <-heard:
		default:
		}
	}
	in := w.mail
	w.mail.retry, w.mail.objectsChanged, w.mail.resourcesFreed, w.mail.completedElsewhere = false, false, "", false
	w.mail.shutDownWithin, w.mail.restartAll, w.mail.restartContainers = nil, false, nil
	return in
}
