package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
	"podd/internal/wake"
)

// containerStop is the termination of one container: its preStop hook, its turn, the stop
// signal, SIGKILL. It goes on outside the worker's syncs, which may only shorten it:
// whatever they decide, a hook does not run twice.
type containerStop struct {
	// ended is closed by end once the container has exited: later turns wait for it, and a
	// hook that has outlived its grace period ends with it.
	ended chan struct{}
	end   func()
	// done is closed when the termination is over, with the result err, and nil while
	// none is in progress; cancel gives it up. They belong to the worker's goroutine,
	// err after done.
	done   chan struct{}
	err    error
	cancel context.CancelFunc
	// watched says that abortRequests is in progress. It belongs to the worker's
	// goroutine.
	watched bool
	// podIP is where the hook reaches its pod, and after are the terminations that
	// come first. Both are set before it begins and not changed while it is in
	// progress.
	podIP string
	after []*containerStop

	mu         sync.Mutex         // guards what follows
	cancelHook context.CancelFunc // ends the hook; nil for none
	countdown  plan.Countdown
	shortened  chan struct{} // closed when countdown is shortened
}

func newContainerStop(grace time.Duration) *containerStop {
	op := &containerStop{ended: make(chan struct{}), shortened: make(chan struct{}), countdown: plan.NewCountdown(grace, time.Now())}
	op.end = sync.OnceFunc(func() {
		close(op.ended)
		op.mu.Lock()
		defer op.mu.Unlock()
		if op.cancelHook != nil {
			op.cancelHook()
		}
	})
	return op
}

// hooked says how to end the hook once the container has exited.
func (s *containerStop) hooked(cut context.CancelFunc) {
	s.mu.Lock()
	s.cancelHook = cut
	s.mu.Unlock()
	if closed(s.ended) {
		cut()
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// shortenGracePeriod shortens the grace period to grace from now; it is never extended.
func (s *containerStop) shortenGracePeriod(grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, changed := s.countdown.Shortened(grace, time.Now())
	if !changed {
		return
	}
	s.countdown = next
	close(s.shortened)
	s.shortened = make(chan struct{})
}

// remaining returns the remaining time; shortened is closed when that changes.
func (s *containerStop) remaining() (left plan.Countdown, shortened <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countdown, s.shortened
}

// within returns a context that ends with the grace period, which bounds what precedes a
// container's stop.
func (s *containerStop) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for ctx.Err() == nil {
			left, shortened := s.remaining()
			wake.Until(ctx, shortened, left.Until)
			if !time.Now().Before(left.Until) {
				cancel()
			}
		}
	}()
	return ctx, cancel
}

// errPodChanged says that waiting for a stop was interrupted in order to sync the pod.
var errPodChanged = errors.New("the pod changed while it was being stopped")

// stop stops containers concurrently, and then sandboxes: stopping a sandbox kills
// what still runs in it. A grace period may be long, and the worker keeps syncing
// meanwhile: woken, stop returns errPodChanged.
func (w *worker) stop(ctx context.Context, v *view) error {
	step := &v.step
	w.beginStops(v)
	if err := w.awaitStops(ctx, v); err != nil {
		return err
	}
	err := each(step.StopSandboxes, func(id string) error {
		return ignoreNotFound(w.agent.cfg.Sandboxes.StopSandbox(ctx, id))
	})
	if err != nil {
		w.recordFailure(ctx, v.granted, "FailedKillPod", "error killing pod: ", err)
		return fmt.Errorf("stop sandbox: %w", err)
	}
	return nil
}

// beginStops starts the stops that have not started, and shortens those that have.
func (w *worker) beginStops(v *view) {
	d := v.granted
	ending := v.step.Phase == pod.PhaseTerminating || v.step.Completed
	var begin []plan.Stop
	for _, s := range v.step.Stop {
		op := w.stops.byID[s.ID]
		switch {
		case op == nil:
			op = newContainerStop(s.Grace)
			w.stops.byID[s.ID] = op
			w.postStartStopped(s.ID)
			w.agent.cfg.Events.ContainerEvent(d.Pod, s.Name, v1.EventTypeNormal, "Killing", s.Message)
			w.log.Info("stopping container", "container", s.Name, "grace", s.Grace, "event", s.Message)
		default:
			op.shortenGracePeriod(s.Grace)
		}
		if op.done == nil {
			op.done = make(chan struct{})
			begin = append(begin, s)
		}
		if ending && !op.watched {
			op.watched = true
			w.spawn(func(ctx context.Context) { w.abortRequests(ctx, d, s.Name, op) })
		}
	}
	for _, s := range begin {
		op := w.stops.byID[s.ID]
		op.podIP, op.after = w.podIP(v.seen, s.ID), nil
		for _, id := range s.After {
			if first := w.stops.byID[id]; first != nil {
				op.after = append(op.after, first)
			}
		}
		op.cancel = w.spawn(func(ctx context.Context) {
			op.err = w.stopContainer(ctx, d, s, op)
			close(op.done)
			w.stops.ended.Notify()
		})
	}
}

// awaitStops waits until the stops of a step are over.
func (w *worker) awaitStops(ctx context.Context, v *view) error {
	step := &v.step
	var alarm <-chan time.Time
	if left := time.Until(v.wakeAt); left > 0 {
		t := time.NewTimer(left)
		defer t.Stop()
		alarm = t.C
	}
	for {
		left, err := w.stopsLeft(step.Stop)
		if err != nil {
			w.recordFailure(ctx, v.granted, "FailedKillPod", "error killing pod: ", err)
			return fmt.Errorf("stop containers: %w", err)
		}
		if left == 0 {
			return nil
		}
		select {
		case <-w.stops.ended:
		case <-w.poke:
			return errPodChanged
		case <-alarm:
			return errPodChanged
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stopsLeft counts the stops in progress. A failed one is returned as an error, and the
// next sync retries it. A finished stop stays known until the container is observed to
// have exited: if a container's shim has just ended, containerd 2.4 answers that it
// stopped the container up to a second before it shows that. A stop that follows in that
// second is the same stop.
func (w *worker) stopsLeft(stops []plan.Stop) (left int, err error) {
	var errs []error
	for _, s := range stops {
		op := w.stops.byID[s.ID]
		if op == nil || op.done == nil {
			continue
		}
		select {
		case <-op.done:
			if op.err != nil {
				errs = append(errs, op.err)
			}
			op.done, op.err = nil, nil
		default:
			left++
		}
	}
	return left, errors.Join(errs...)
}

// stopContainer takes one container through hook, turn and signal.
func (w *worker) stopContainer(ctx context.Context, d *pod.Desired, s plan.Stop, op *containerStop) error {
	inTime, cancel := op.within(ctx)
	defer cancel()
	if left, _ := op.remaining(); s.PreStop != nil && left.RunsHook() && w.firstPreStop(s.ID) {
		w.preStop(inTime, d, op, s)
	}
	for _, first := range op.after {
		select {
		case <-first.ended:
		case <-inTime.Done():
		}
	}
	for ctx.Err() == nil {
		left, shortened := op.remaining()
		call, cancel := context.WithCancelCause(ctx)
		go func() {
			select {
			case <-shortened:
				cancel(errPodChanged)
			case <-call.Done():
			}
		}()
		err := ignoreNotFound(w.agent.cfg.Containers.StopContainer(call, s.ID, left.Signal(time.Now())))
		retry := errors.Is(context.Cause(call), errPodChanged)
		cancel(nil)
		switch {
		case err == nil:
			op.end()
			return nil
		case !retry:
			return err
		}
	}
	return context.Cause(ctx)
}

// killTime is how long a container may take to end after SIGKILL was due.
const killTime = 10 * time.Second

// abortRequests helps a container that was killed and does not exit: its processes may
// wait for a server that no longer responds. It blocks until the container has ended or
// ctx ends, even if calls to stop the container fail meanwhile. It leaves the container of
// a pod that goes on to wait: aborting would lose what the container has not written yet.
func (w *worker) abortRequests(ctx context.Context, d *pod.Desired, container string, op *containerStop) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-op.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		left, shortened := op.remaining()
		due := left.Until.Add(killTime)
		if !time.Now().Before(due) {
			break
		}
		if !wake.Until(ctx, shortened, due) {
			return
		}
	}
	w.agent.cfg.Volumes.AbortRequests(ctx, w.uid, func(why string) {
		w.log.Warn("container does not end although it was killed", "container", container, "reason", why)
		if d.Pod.Name != "" {
			w.agent.cfg.Events.ContainerEvent(d.Pod, container, v1.EventTypeWarning, "FailedKillPod", "Container "+container+" does not end although it was killed: "+why)
		}
	})
}

// pruneStops gives up the stops of containers that have exited, for whatever reason: no
// container is left to run a hook for.
func (w *worker) pruneStops(seen pod.Observed) {
	if len(w.stops.byID)+len(w.preStopped) == 0 {
		return
	}
	left := make(map[string]bool, len(seen.Containers))
	for i := range seen.Containers {
		left[seen.Containers[i].ID] = seen.Containers[i].State != pod.ContainerExited
	}
	for id, op := range w.stops.byID {
		if !left[id] {
			op.end()
			op.cancel()
			delete(w.stops.byID, id)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.preStopped {
		if !left[id] {
			delete(w.preStopped, id)
		}
	}
}
