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
	kill    *plan.Kill
	end     *pod.End
	// retry asks, once, to forget what holds the pod back.
	retry bool
	// room says, once, that the node has more room than before.
	room bool
	// looked is when the last look began; an older hint tells nothing new.
	looked time.Time
}

// want leaves a newer spec of the same pod. An end that began without a manifest
// goes on by what the runtime kept of it: one that comes back must not cut the
// grace period that containers were promised.
func (w *worker) want(d *pod.Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	orphan := len(w.mail.desired.Pod.Spec.Containers) == 0
	if w.mail.desired == d || w.mail.kill != nil && orphan {
		return
	}
	w.mail.desired = d
	w.wakeLocked()
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
	if w.mail.kill != nil && w.mail.kill.Grace <= grace {
		return
	}
	w.mail.kill = &plan.Kill{Grace: grace, Why: why}
	w.log.Info("pod is ended", "why", why, "grace", grace)
	if w.interrupt != nil {
		w.interrupt(errEnded)
	}
	w.wakeLocked()
}

// errEnded is why a round is interrupted that was to make the pod run.
var errEnded = errors.New("the pod is to end")

// interruptible returns the context of a round that an end asked for in its
// course cuts short; the end's own rounds are not.
func (w *worker) interruptible(ctx context.Context, in mail) (context.Context, func()) {
	if in.kill != nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupt = cancel
	if w.mail.kill != nil || w.mail.end != in.end {
		cancel(errEnded)
	}
	return ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.interrupt = nil
		cancel(nil)
	}
}

// hintSlack is how far back a hint's own time is believed. Beyond it the
// clock was set, and the hint counts.
const hintSlack = 5 * time.Second

func (w *worker) wake(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if age := w.mail.looked.Sub(at); !at.IsZero() && age > 0 && age < hintSlack {
		return
	}
	w.wakeLocked()
}

func (w *worker) wakeLocked() {
	select {
	case w.poke <- struct{}{}: // capacity 1
	default:
	}
}

// take reads the mailbox; the look that follows begins now and answers every
// wake-up so far.
func (w *worker) take(now time.Time) mail {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mail.looked = now
	select {
	case <-w.poke:
	default:
	}
	in := w.mail
	w.mail.retry, w.mail.room = false, false
	return in
}
