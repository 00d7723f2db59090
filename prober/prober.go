package prober

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/budget"
	"podd/internal/features"
	"podd/internal/pod"
	"podd/internal/wake"
)

// Execer runs a command in a container: *cri.Client. It returns the exit code as
// a result, pod.ErrTimeout for a command that outlived timeout, and other errors
// when the command could not be run.
type Execer interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error)
}

// Waker wakes pods to be synced.
type Waker interface{ Wake(uid pod.UID) }

// Recorder receives the events of containers: Unhealthy and ProbeWarning.
type Recorder interface {
	ContainerEvent(p *v1.Pod, container, eventType, reason, message string)
}

// Config configures a Prober. Execer, Waker and Events must be set.
type Config struct {
	Execer Execer
	Waker  Waker
	Events Recorder
	// StateDir keeps last results across a restart of podd, one small file per pod;
	// empty to forget them. It should not survive a boot, as no container does.
	StateDir string
	// Budget bounds the runs that pods' annotations want earlier than their probes' periods;
	// nil for no bound.
	Budget *budget.Budget
	// Features are the feature gates. They decide about HTTP/2 without TLS and gRPC with TLS.
	Features features.Set
	Log      *slog.Logger
	// Metrics gets podd's own metrics of probing; PerProbe gets those by pod and
	// container that /metrics/probes shows. Either may be nil.
	Metrics, PerProbe prometheus.Registerer
}

// Prober runs the probes of all pods. Create it with New, then Run.
type Prober struct {
	cfg        Config
	log        *slog.Logger
	metrics    *metrics
	gate       *gate
	checkpoint *resultCheckpoint
	// startedAt distinguishes containers that were started before this podd.
	startedAt time.Time
	// runHandler runs a probe's handler once; a field for tests in simulated time.
	runHandler func(ctx context.Context, j job) attemptResult

	idle chan probeRun // unbuffered: from the loop to goroutines that wait for work
	poke wake.Signal   // the queue's head may have changed

	mu           sync.Mutex // guards what follows and all that hangs on it
	pods         map[pod.UID]*probedPod
	queue        queue
	spread       map[time.Duration]int // how many probes of a period were spread
	execOverload bool                  // exec probes take more of the machine than they should
}

// New returns a prober that runs nothing until Run. It reads what an earlier podd
// saved in StateDir.
func New(cfg Config) *Prober {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Prober{
		cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Metrics, cfg.PerProbe), gate: newGate(2 * runtime.NumCPU()),
		checkpoint: loadCheckpoint(cfg.StateDir, cfg.Log), startedAt: time.Now(), idle: make(chan probeRun), poke: wake.New(),
		pods: make(map[pod.UID]*probedPod), spread: make(map[time.Duration]int),
	}
	p.runHandler = newHandlers(cfg.Execer, p.gate).withFeatures(cfg.Features).run
	return p
}

// Run probes until ctx ends, and returns after the last run has ended and the last
// results are on disk. It returns nil.
func (p *Prober) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.checkpoint.run(ctx, p.snapshot) })
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait, some := p.startDue(ctx, &wg); some {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.poke:
		}
	}
}

// startDue starts the runs that are due, each in an idle goroutine: a target that hangs
// delays no other. It returns the time until the next one is due.
func (p *Prober) startDue(ctx context.Context, wg *sync.WaitGroup) (wait time.Duration, some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for len(p.queue) > 0 {
		next := p.queue[0]
		if wait := next.due.Sub(now); wait > 0 {
			return wait + untilAligned(next.due), true
		}
		p.queue.remove(next)
		runCtx, cancel := context.WithCancel(ctx)
		next.cancel = cancel
		job := next.job()
		r := probeRun(func() {
			p.runProbe(runCtx, next, job)
			cancel()
		})
		select {
		case p.idle <- r: // somebody has nothing to do
		default:
			wg.Go(func() { p.runWorker(ctx, r) })
		}
	}
	return 0, false
}

// probeRun is one run that is due, passed from one goroutine to another.
type probeRun func()

// workerIdleTimeout is how long a goroutine waits for another run: a new one would have to
// grow its stack each time, which costs a tenth of a probe.
const workerIdleTimeout = 2 * time.Second

// runWorker does runs, one after another, until no run has come for a while.
func (p *Prober) runWorker(ctx context.Context, r probeRun) {
	timer := time.NewTimer(workerIdleTimeout)
	defer timer.Stop()
	for {
		r()
		timer.Reset(workerIdleTimeout)
		select {
		case r = <-p.idle:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// wakeAlignment aligns the runs that are due at about the same time: waking up costs more
// than some probes do.
const wakeAlignment = 10 * time.Millisecond

// untilAligned is the time from t to the next multiple of wakeAlignment.
func untilAligned(t time.Time) time.Duration {
	if past := t.Sub(t.Truncate(wakeAlignment)); past > 0 {
		return wakeAlignment - past
	}
	return 0
}

// enqueueLocked queues a probe, and wakes the loop if nothing is due sooner.
func (p *Prober) enqueueLocked(pr *probe) {
	p.queue.add(pr)
	if pr.index != 0 {
		return
	}
	p.poke.Notify()
}
