package pleg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podd/internal/pod"
	"podd/internal/wake"
)

const (
	// relistPeriod is the period of the safety relist; nothing waits for it.
	relistPeriod = 5 * time.Minute
	// pollPeriod is the period for runtimes without a stream, as in the kubelet.
	pollPeriod = time.Second
	// relistTimeout bounds one relist.
	relistTimeout = time.Minute
	// secondRelistDelay is how long after the stream opened the pods are relisted once
	// more: CRI does not acknowledge that a runtime listens to a new subscriber.
	secondRelistDelay = 2 * time.Second
	// contactPeriod is the longest time between calls to the runtime, so that its
	// health is known when nothing happens.
	contactPeriod = time.Minute
	// relistThreshold is the kubelet's, of the same name.
	relistThreshold = 3 * time.Minute
	// stableAfter is the age of a stream after which the back-off is reset.
	stableAfter = 10 * time.Second

	// minEventRelistInterval is the shortest time between relists for events that name no
	// pod.
	minEventRelistInterval = time.Second
)

// reopen is the time until a stream that was lost is opened again.
var reopen = wake.Backoff{Initial: 50 * time.Millisecond, Max: time.Second}

// Runtime is what a Relister reads.
type Runtime interface {
	// Summaries lists podd's pods, cheaply.
	Summaries(ctx context.Context) ([]pod.Summary, error)
	// Events calls hint for each event, with its pod and its time, until the stream is
	// lost, and returns why. It returns pod.ErrUnimplemented if the runtime has no
	// stream.
	Events(ctx context.Context, hint func(uid pod.UID, at time.Time)) error
	// Alive is one cheap call to the runtime.
	Alive(ctx context.Context) error
}

// Waker syncs a pod because of something that happened at the time at; zero if that is
// not known. It must not block.
type Waker interface {
	Wake(uid pod.UID, at time.Time)
}

// Config is what a Relister is made of; Waker must be set.
type Config struct {
	Waker Waker
	// Log and Metrics may be nil.
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Period of the safety relist; 0 is 5 minutes. It is jittered by a tenth.
	Period time.Duration
	// OnRecovery, if set, is called when the runtime is back after it was unavailable
	// or its stream was lost: calls that failed meanwhile should be retried. It must
	// not block.
	OnRecovery func()
}

// Relister wakes the workers of pods that changed. Create it with New, Run it once.
type Relister struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics

	relist wake.Signal // a relist is requested

	mu              sync.Mutex // guards everything below
	lastContact     time.Time  // when the runtime last answered
	lastError       error      // of the last try, nil after a success
	polling         bool       // the runtime has no stream
	interrupted     bool       // it was unavailable, or its stream was lost
	relistScheduled bool       // one is requested within minEventRelistInterval

	runtime Runtime // Run's

	// Owned by the goroutine of Run.
	seen         map[pod.UID]pod.Summary
	lastRelist   time.Time
	relistFailed bool // the last relist failed
}

// New returns a Relister; it starts nothing. Healthy counts from here on, so that a
// runtime which never responds is reported, too.
func New(cfg Config) *Relister {
	if cfg.Period <= 0 {
		cfg.Period = relistPeriod
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Relister{
		cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Metrics),
		relist: wake.New(), lastContact: time.Now(),
	}
}

// Run watches the runtime until ctx ends. The first relist wakes every pod that
// the runtime knows of.
func (r *Relister) Run(ctx context.Context, runtime Runtime) error {
	r.runtime = runtime
	var stream sync.WaitGroup
	stream.Go(func() { r.follow(ctx) })
	defer stream.Wait()
	net := time.NewTimer(r.next())
	defer net.Stop()
	contact := time.NewTicker(contactPeriod)
	defer contact.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.relist:
			r.list(ctx)
		case <-net.C:
			r.list(ctx)
		case <-contact.C:
			r.checkContact(ctx)
			continue
		}
		net.Reset(r.next())
	}
}

// next is the time until the next safety relist: short after a relist that failed.
func (r *Relister) next() time.Duration {
	r.mu.Lock()
	polling := r.polling
	r.mu.Unlock()
	if polling || r.relistFailed {
		return pollPeriod
	}
	return r.cfg.Period + time.Duration((rand.Float64()-0.5)*0.2*float64(r.cfg.Period))
}

// Healthy is nil if the runtime was in contact during the last 3 minutes, and
// otherwise an error that says so.
func (r *Relister) Healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ago := time.Since(r.lastContact)
	if ago < relistThreshold {
		return nil
	}
	err := fmt.Errorf("PLEG is not healthy: the container runtime was last in contact %v ago; threshold is %v", ago.Truncate(time.Second), relistThreshold)
	if r.lastError != nil {
		err = fmt.Errorf("%w: %w", err, r.lastError)
	}
	return err
}

// follow keeps the event stream open until ctx ends.
func (r *Relister) follow(ctx context.Context) {
	wait := reopen.Initial
	for ctx.Err() == nil {
		opened := time.Now()
		// What happened without a stream is found by relists: one now, one when the
		// runtime certainly sends events.
		r.requestRelist()
		again := time.AfterFunc(secondRelistDelay, r.requestRelist)
		r.metrics.streams.Inc()
		err := r.runtime.Events(ctx, r.event)
		again.Stop()
		if ctx.Err() != nil {
			return
		}
		r.metrics.streamErrors.Inc()
		if errors.Is(err, pod.ErrUnimplemented) {
			r.log.Warn("the container runtime has no event stream: listing all pods once a second instead, which costs CPU and reacts later", "error", err)
			r.mu.Lock()
			r.polling = true
			r.mu.Unlock()
			r.requestRelist()
			return
		}
		if time.Since(opened) >= stableAfter {
			wait = reopen.Initial
		}
		r.metrics.restarts.Inc()
		if wait == reopen.Initial {
			r.log.Warn("lost the container runtime's event stream", "error", err)
		}
		r.recordContact(err)
		r.mu.Lock()
		r.interrupted = true
		r.mu.Unlock()
		r.requestRelist()
		wake.Sleep(ctx, wait)
		wait = reopen.Next(wait)
	}
}

// event is called for each event of the stream.
func (r *Relister) event(uid pod.UID, at time.Time) {
	r.recordContact(nil)
	r.metrics.latency.Observe(max(time.Since(at), 0).Seconds())
	if uid == "" {
		r.metrics.events.WithLabelValues("unknown").Inc()
		r.scheduleRelist()
		return
	}
	r.metrics.events.WithLabelValues("stream").Inc()
	r.cfg.Waker.Wake(uid, at)
}

// requestRelist requests a relist; twice before it is the same as once.
func (r *Relister) requestRelist() {
	r.relist.Notify()
}

// scheduleRelist requests one relist for any number of events within a second.
func (r *Relister) scheduleRelist() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.relistScheduled {
		return
	}
	r.relistScheduled = true
	time.AfterFunc(minEventRelistInterval, func() {
		r.mu.Lock()
		r.relistScheduled = false
		r.mu.Unlock()
		r.requestRelist()
	})
}

// recordContact records whether the runtime responded.
func (r *Relister) recordContact(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastError = err
	if err == nil {
		r.lastContact = time.Now()
		r.metrics.lastSeen.Set(float64(r.lastContact.UnixNano()) / 1e9)
	}
}

// checkContact checks that the runtime responds if there was no other contact.
func (r *Relister) checkContact(ctx context.Context) {
	r.mu.Lock()
	recent := time.Since(r.lastContact) < contactPeriod/2
	r.mu.Unlock()
	if recent {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, relistTimeout)
	defer cancel()
	r.recordContact(r.runtime.Alive(ctx))
}

// list compares all pods with the previous list, and wakes those that changed.
func (r *Relister) list(ctx context.Context) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, relistTimeout)
	defer cancel()
	pods, err := r.runtime.Summaries(ctx)
	if ctx.Err() == nil || err == nil {
		r.recordContact(err)
	} else {
		r.recordContact(fmt.Errorf("list pods: %w", context.Cause(ctx)))
	}
	if err != nil {
		if !r.relistFailed {
			r.log.Warn("cannot list pods", "error", err)
		}
		r.relistFailed = true
		return
	}
	r.mu.Lock()
	back := r.interrupted || r.relistFailed
	r.interrupted = false
	r.mu.Unlock()
	r.metrics.relisted(start, r.lastRelist)
	r.lastRelist, r.relistFailed = start, false
	now := make(map[pod.UID]pod.Summary, len(pods))
	for _, g := range pods {
		now[g.UID] = g
		if old, known := r.seen[g.UID]; !known || changed(old, g) {
			r.wake(g.UID)
		}
	}
	for uid := range r.seen {
		if _, still := now[uid]; !still {
			r.wake(uid)
		}
	}
	r.seen = now
	if back {
		r.log.Info("the container runtime is back", "pods", len(now))
		if r.cfg.OnRecovery != nil {
			r.cfg.OnRecovery()
		}
	}
}

func (r *Relister) wake(uid pod.UID) {
	r.metrics.events.WithLabelValues("relist").Inc()
	r.cfg.Waker.Wake(uid, time.Time{})
}

func changed(a, b pod.Summary) bool {
	return !maps.Equal(a.Sandboxes, b.Sandboxes) || !maps.Equal(a.Containers, b.Containers)
}
