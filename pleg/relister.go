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
	// settle is how long after the stream opened the pods are relisted once more: CRI
	// does not acknowledge that a runtime listens to a new subscriber.
	settle = 2 * time.Second
	// contactPeriod is the longest time between calls to the runtime, so that its
	// health is known when nothing happens.
	contactPeriod = time.Minute
	// healthyFor is the kubelet's threshold (relistThreshold).
	healthyFor = 3 * time.Minute
	// stableAfter is the age of a stream after which the back-off is reset.
	stableAfter = 10 * time.Second

	// slowEvents is the pause between relists for events that name no pod.
	slowEvents = time.Second
)

// reopen is the time until a stream that was lost is opened again.
var reopen = wake.Backoff{First: 50 * time.Millisecond, Last: time.Second}

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
	// Recovered, if set, is called when the runtime is back after it was unavailable
	// or its stream was lost: calls that failed meanwhile should be retried. It must
	// not block.
	Recovered func()
}

// Relister wakes the workers of pods that changed. Create it with New, Run it once.
type Relister struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics

	relist wake.Signal // somebody wants a relist

	mu      sync.Mutex // guards everything below
	contact time.Time  // when the runtime last answered
	failure error      // of the last try, nil after a success
	polling bool       // the runtime has no stream
	away    bool       // it was away, or may have been
	soon    bool       // a relist was asked for within slowEvents

	runtime Runtime // Run's

	// Owned by the goroutine of Run.
	seen     map[pod.UID]pod.Summary
	listed   time.Time
	unlisted bool // the last relist failed
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
		relist: wake.New(), contact: time.Now(),
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
			r.touch(ctx)
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
	if polling || r.unlisted {
		return pollPeriod
	}
	return r.cfg.Period + time.Duration((rand.Float64()-0.5)*0.2*float64(r.cfg.Period))
}

// Healthy is nil if the runtime was in contact during the last 3 minutes, and
// otherwise an error that says so.
func (r *Relister) Healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ago := time.Since(r.contact)
	if ago < healthyFor {
		return nil
	}
	err := fmt.Errorf("PLEG is not healthy: the container runtime was last in contact %v ago; threshold is %v", ago.Truncate(time.Second), healthyFor)
	if r.failure != nil {
		err = fmt.Errorf("%w: %w", err, r.failure)
	}
	return err
}

// follow keeps the event stream open until ctx ends.
func (r *Relister) follow(ctx context.Context) {
	wait := reopen.First
	for ctx.Err() == nil {
		opened := time.Now()
		// What happened without a stream is found by relists: one now, one when the
		// runtime certainly sends events.
		r.want()
		again := time.AfterFunc(settle, r.want)
		err := r.runtime.Events(ctx, r.event)
		again.Stop()
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, pod.ErrUnimplemented) {
			r.log.Warn("the container runtime has no event stream: listing all pods once a second instead, which costs CPU and reacts later", "error", err)
			r.mu.Lock()
			r.polling = true
			r.mu.Unlock()
			r.want()
			return
		}
		if time.Since(opened) >= stableAfter {
			wait = reopen.First
		}
		r.metrics.restarts.Inc()
		if wait == reopen.First {
			r.log.Warn("lost the container runtime's event stream", "error", err)
		}
		r.note(err)
		r.mu.Lock()
		r.away = true
		r.mu.Unlock()
		r.want()
		wake.Sleep(ctx, wait)
		wait = reopen.Next(wait)
	}
}

// event is called for each event of the stream.
func (r *Relister) event(uid pod.UID, at time.Time) {
	r.note(nil)
	if uid == "" {
		r.metrics.events.WithLabelValues("unknown").Inc()
		r.wantSoon()
		return
	}
	r.metrics.events.WithLabelValues("stream").Inc()
	r.cfg.Waker.Wake(uid, at)
}

// want requests a relist; twice before it is the same as once.
func (r *Relister) want() {
	r.relist.Notify()
}

// wantSoon requests one relist for any number of events within a second.
func (r *Relister) wantSoon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.soon {
		return
	}
	r.soon = true
	time.AfterFunc(slowEvents, func() {
		r.mu.Lock()
		r.soon = false
		r.mu.Unlock()
		r.want()
	})
}

// note records whether the runtime responded.
func (r *Relister) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
	if err == nil {
		r.contact = time.Now()
		r.metrics.lastSeen.Set(float64(r.contact.UnixNano()) / 1e9)
	}
}

// touch checks that the runtime responds if there was no other contact.
func (r *Relister) touch(ctx context.Context) {
	r.mu.Lock()
	recent := time.Since(r.contact) < contactPeriod/2
	r.mu.Unlock()
	if recent {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, relistTimeout)
	defer cancel()
	r.note(r.runtime.Alive(ctx))
}

// list compares all pods with the previous list, and wakes those that changed.
func (r *Relister) list(ctx context.Context) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, relistTimeout)
	defer cancel()
	pods, err := r.runtime.Summaries(ctx)
	if ctx.Err() == nil || err == nil {
		r.note(err)
	} else {
		r.note(fmt.Errorf("list pods: %w", context.Cause(ctx)))
	}
	if err != nil {
		if !r.unlisted {
			r.log.Warn("cannot list pods", "error", err)
		}
		r.unlisted = true
		return
	}
	r.mu.Lock()
	back := r.away || r.unlisted
	r.away = false
	r.mu.Unlock()
	r.metrics.relisted(start, r.listed)
	r.listed, r.unlisted = start, false
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
		if r.cfg.Recovered != nil {
			r.cfg.Recovered()
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
