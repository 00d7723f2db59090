package agent

import (
	"context"
	"errors"
	"time"

	"podd/agent/plan"
	"podd/internal/pod"
)

// mail is what others have left for the worker: one slot each, newest wins.
type mail struct {
	desired *pod.Desired
	plan.Ending
	// retry asks, once, to forget what holds the pod back.
	retry bool
	// objects says, once, that one of the pod's came, changed or went.
	objects bool
	// room says, once, that the node has more room than before.
	room bool
	// synced is when the last sync began; an older hint tells nothing new.
	synced instant
}

// want leaves a newer spec of the same pod. An end that began without a manifest
// goes on by what the runtime kept of it: one that comes back must not cut the
// grace period that containers were promised.
func (w *worker) want(d *pod.Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	orphan := len(w.mail.desired.Pod.Spec.Containers) == 0
	if w.mail.desired == d || w.mail.Kill != nil && orphan {
		return
	}
	w.mail.desired = d
	w.orderLocked()
}

// wanted is the newest spec that was left for the worker.
func (w *worker) wanted() *pod.Desired {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mail.desired
}

// end asks for the pod's end. It is never taken back; asking again changes
// nothing, unless it is for a shorter grace period.
func (w *worker) end(why string) { w.endWithin(plan.GracePeriod(w.wanted().Pod), why) }

func (w *worker) endWithin(grace time.Duration, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next, news := w.mail.Killed(plan.Kill{Grace: grace, Why: why})
	if !news {
		return
	}
	w.mail.Ending = next
	w.log.Info("stopping pod", "why", why, "grace", grace)
	if w.interrupt != nil {
		w.interrupt(errEnded)
	}
	w.orderLocked()
}

// errEnded is why a sync is interrupted that was to make the pod run.
var errEnded = errors.New("the pod is being stopped")

// interruptible returns the context of a sync that an end asked for in its
// course cuts short; the end's own syncs are not.
func (w *worker) interruptible(ctx context.Context, in mail) (context.Context, func()) {
	if in.Kill != nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupt = cancel
	if w.mail.Kill != nil || w.mail.End != in.End {
		cancel(errEnded)
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
	if stale(at, w.mail.synced, instantOf(time.Now())) {
		return
	}
	w.wakeLocked()
}

// instant is a moment by the wall clock, which may be set at any time, and by one
// that only goes forward.
type instant struct {
	wall   time.Time
	steady time.Duration
}

// steadily is from when the steady clock counts; any time does.
var steadily = time.Now()

func instantOf(t time.Time) instant { return instant{wall: t.Round(0), steady: t.Sub(steadily)} }

// hintSlack is how far back a hint's own time is believed.
const hintSlack = 5 * time.Second

// stale says that a hint tells of something that a sync has seen: it happened
// before the sync began, by the wall clock, which the runtime shares. Where that
// was set back since the sync, by as much as the hint is older or more, nobody can
// tell, and the hint counts.
func stale(at time.Time, synced, now instant) bool {
	if at.IsZero() || synced.wall.IsZero() {
		return false
	}
	age := synced.wall.Sub(at)
	setBack := max((now.steady-synced.steady)-now.wall.Sub(synced.wall), 0)
	return age > setBack && age < hintSlack
}

func (w *worker) wakeLocked() {
	select {
	case w.poke <- struct{}{}: // capacity 1
	default:
	}
}

// orderLocked is wakeLocked for what must not wait, whatever went wrong before.
func (w *worker) orderLocked() {
	select {
	case w.order <- struct{}{}: // capacity 1
	default:
	}
	w.wakeLocked()
}

// take reads the mailbox; the sync that follows begins now and answers every
// wake-up so far.
func (w *worker) take(now time.Time) mail {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mail.synced = instantOf(now)
	for _, heard := range []chan struct{}{w.poke, w.order} {
		select {
		case <-heard:
		default:
		}
	}
	in := w.mail
	w.mail.retry, w.mail.objects, w.mail.room = false, false, false
	return in
}
