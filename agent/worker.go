package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

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

	mu        sync.Mutex // guards mail and interrupt
	mail      mail
	interrupt context.CancelCauseFunc // ends the round that is under way; nil for none

	// What follows belongs to run's goroutine alone.
	phase     pod.Phase
	memory    plan.Memory
	startTime time.Time
	mounted   bool
	released  bool // volumes of a pod that has run to its end
	created   bool // this podd made a sandbox
	tries     int  // rounds in a row that ended in an error
	acted     acted
	told      told
	counted   counted
	// imageSince is when the start began to wait for an image, pulling what
	// earlier waits took.
	imageSince time.Time
	pulling    time.Duration
}

// mail is what others have left for the worker: one slot each, newest wins.
type mail struct {
	desired *pod.Desired
	kill    *plan.Kill
	// looked is when the last look began; an older hint tells nothing new.
	looked time.Time
}

func newWorker(a *Agent, d *pod.Desired) *worker {
	name := d.Name()
	if d.Pod.Name == "" {
		name = "" // only its UID is known
	}
	return &worker{
		agent: a,
		uid:   d.UID(),
		name:  name,
		log:   a.log.With("pod", name, "uid", d.UID()),
		poke:  make(chan struct{}, 1),
		mail:  mail{desired: d},
		told:  told{states: make(map[string]pod.ContainerState)},
	}
}

// want leaves a newer spec of the same pod.
func (w *worker) want(d *pod.Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mail.desired == d {
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

// end asks for the pod's end, with the pod's own grace period. It is never
// taken back; asking again changes nothing.
func (w *worker) end(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mail.kill != nil {
		return
	}
	w.mail.kill = &plan.Kill{Grace: plan.GracePeriod(w.mail.desired.Pod), Why: why}
	w.log.Info("pod is ended", "why", why)
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
	if w.mail.kill != nil {
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
	return w.mail
}

// deafness is the longest time after a round that went wrong in which nothing
// wakes the worker: such a round's own calls cause events, and each would
// start the next one.
const deafness = time.Second

// run looks, decides and acts until the pod is gone or ctx ends.
func (w *worker) run(ctx context.Context) {
	for w.phase != pod.PhaseGone && ctx.Err() == nil {
		wakeAt, again := w.round(ctx)
		if w.tries > 0 {
			sleep(ctx, min(time.Until(wakeAt), deafness))
		}
		if !again {
			wait(ctx, w.poke, wakeAt)
		}
	}
	if w.phase == pod.PhaseGone {
		w.agent.cfg.Images.Forget(w.uid)
		w.agent.cfg.Status.Forget(w.uid)
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
		return w.failed(ctx, "look at the pod", err), false
	}
	w.note(in.desired, seen, began)
	step := plan.Next(plan.Input{
		Phase: w.phase, Desired: in.desired, Observed: seen, Kill: in.kill,
		Memory: w.memory, Policy: w.agent.cfg.BackOff, Now: began,
	})
	w.memory = step.Memory
	w.tellBackOff(in.desired, seen, &step)
	w.report(in.desired, seen, &step, nil)
	if step.Finished {
		w.release(ctx)
	}
	if step.Idle() {
		w.tries = 0
		before := w.phase
		w.advance(step.Phase)
		w.agent.metrics.rounds.WithLabelValues(operation(in, w.phase)).Observe(time.Since(began).Seconds())
		return step.WakeAt, w.phase != before && w.phase > pod.PhaseRunning
	}
	did, err := w.apply(ctx, in.desired, seen, &step)
	w.agent.metrics.rounds.WithLabelValues(operation(in, w.phase)).Observe(time.Since(began).Seconds())
	if errors.Is(context.Cause(ctx), errEnded) {
		w.advance(step.Phase)
		return time.Time{}, true // whatever it came to, the next look tells
	}
	if err != nil {
		wakeAt = w.failed(ctx, "sync the pod", err)
		w.report(in.desired, seen, &step, err)
		return earliest(wakeAt, step.WakeAt), false
	}
	w.advance(step.Phase)
	if did && w.stuck(in, seen) {
		return w.failed(ctx, "sync the pod", errNoEffect), false
	}
	w.tries = 0
	if !did { // containers that could not start: their waiting reasons are news
		w.report(in.desired, seen, &step, nil)
	}
	return step.WakeAt, did
}

// release unmounts, once, what a pod that has run to its end needs no more. What
// stays mounted goes with the pod.
func (w *worker) release(ctx context.Context) {
	if w.released {
		return
	}
	w.released, w.mounted = true, false
	if err := w.agent.cfg.Volumes.Release(ctx, w.uid); err != nil && ctx.Err() == nil {
		w.log.Warn("volumes of a pod that has run to its end stay mounted until it is removed", "error", err)
	}
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

// note keeps what only the first look tells, and logs what changed since the
// last one.
func (w *worker) note(d *pod.Desired, seen pod.Observed, now time.Time) {
	if w.startTime.IsZero() {
		w.startTime = seen.StartTime
		if w.startTime.IsZero() {
			w.startTime = now
		}
	}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if c.State == pod.ContainerExited && w.told.states[c.ID] == pod.ContainerRunning {
			w.log.Info("container exited", "container", c.Name, "code", c.ExitCode, "reason", c.Reason, "restarts", c.RestartCount)
		}
	}
	w.told.states = make(map[string]pod.ContainerState, len(seen.Containers))
	for i := range seen.Containers {
		w.told.states[seen.Containers[i].ID] = seen.Containers[i].State
	}
	w.count(seen)
	w.measureStart(d, seen, now)
}

// report tells status what is known, with the failures of this round's starts,
// unless it is what was told last.
func (w *worker) report(d *pod.Desired, seen pod.Observed, step *plan.Step, err error) {
	if d.Pod.Name == "" {
		return
	}
	waiting := maps.Clone(step.Waiting)
	for _, st := range step.Start {
		if f, failed := w.memory.Failures[st.Container.Name]; failed {
			waiting[st.Container.Name] = f.Waiting
		}
	}
	message := ""
	switch {
	case err != nil:
		message = err.Error()
	case w.tries > 0:
		message = w.told.err // true until a round comes to its end
	}
	for name, why := range waiting {
		if why.Reason == plan.ReasonContainerCreating && why.Message == "" {
			waiting[name] = pod.Waiting{Reason: why.Reason, Message: message}
		}
	}
	r := pod.Report{Desired: d, Phase: w.phase, Observed: seen, Waiting: waiting, StartTime: w.startTime}
	r.Observed.At = time.Time{}
	if reflect.DeepEqual(r, w.told.report) {
		return
	}
	w.told.report = r
	r.At, r.Observed.At = seen.At, seen.At
	w.agent.cfg.Status.Report(r)
}

// tellBackOff emits the event of a crash loop once for each wait.
func (w *worker) tellBackOff(d *pod.Desired, seen pod.Observed, step *plan.Step) {
	before := w.told.backOff
	w.told.backOff = nil
	for _, name := range step.BackOff {
		id := seen.Latest(name).ID
		w.told.backOff = append(w.told.backOff, id)
		if !slices.Contains(before, id) {
			w.agent.cfg.Events.ContainerEvent(d.Pod, name, v1.EventTypeWarning, "BackOff",
				"Back-off restarting failed container "+name+" in pod "+d.Pod.Name+"_"+d.Pod.Namespace+"("+string(w.uid)+")")
			w.log.Info("container held back", "container", name, "until", step.WakeAt)
		}
	}
}

// told is what was said already, so that it is not said again.
type told struct {
	err     string
	warning string // the last event's reason and message
	states  map[string]pod.ContainerState
	backOff []string // container IDs
	running bool     // the pod's start was measured
	report  pod.Report
}

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
