package prober

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Execer runs a command in a container: *cri.Client. It returns the exit code as
// a result, pod.ErrTimeout for a command that outlived timeout, and other errors
// when the command could not be run.
type Execer interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error)
}

// Waker is told of pods to sync.
type Waker interface{ Wake(uid pod.UID) }

// Recorder takes the events of containers: Unhealthy and ProbeWarning.
type Recorder interface {
	ContainerEvent(p *v1.Pod, container, eventType, reason, message string)
}

// Config is what a Prober is made of. Execer, Waker and Events must be set.
type Config struct {
	Execer Execer
	Waker  Waker
	Events Recorder
	// StateDir keeps last results over a restart of podd, one small file a pod;
	// empty to forget them. It should not survive a boot, as no container does.
	StateDir string
	Log      *slog.Logger
	// Metrics takes podd's own metrics of probing, PerProbe the rows by pod and
	// container that /metrics/probes shows. Either may be nil.
	Metrics, PerProbe prometheus.Registerer
}

// Prober runs the probes of all pods. Make it with New, then Run.
type Prober struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	gate    *gate
	kept    *kept
	// begun tells the containers that ran before podd from podd's own.
	begun time.Time
	// ask runs a probe's handler once; a field for tests in simulated time.
	ask func(ctx context.Context, j job) answer

	idle chan run      // unbuffered: from the loop to goroutines that wait for work
	poke chan struct{} // capacity 1: the queue's head may have changed

	mu     sync.Mutex // guards what follows and all that hangs on it
	pods   map[pod.UID]*probedPod
	queue  queue
	spread map[time.Duration]int // how many probes of a period were spread
	busy   bool                  // exec probes are more than the machine should bear
}

// New returns a prober that runs nothing until Run. It reads what an earlier
// podd kept in StateDir.
func New(cfg Config) *Prober {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Prober{
		cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Metrics, cfg.PerProbe), gate: newGate(2 * runtime.NumCPU()),
		kept: loadKept(cfg.StateDir, cfg.Log), begun: time.Now(), idle: make(chan run), poke: make(chan struct{}, 1),
		pods: make(map[pod.UID]*probedPod), spread: make(map[time.Duration]int),
	}
	p.ask = newHandlers(cfg.Execer, p.gate).ask
	return p
}

// Run probes until ctx ends, and returns after the last run did and what is
// worth keeping is on disk. It returns nil.
func (p *Prober) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.kept.run(ctx, p.snapshot) })
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait, some := p.fire(ctx, &wg); some {
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

// fire begins the runs that are due, each in a goroutine that is free: a target
// that hangs holds up nobody. It says how long nothing else is due.
func (p *Prober) fire(ctx context.Context, wg *sync.WaitGroup) (wait time.Duration, some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for len(p.queue) > 0 {
		next := p.queue[0]
		if wait := next.due.Sub(now); wait > 0 {
			return wait + ahead(next.due), true
		}
		p.queue.remove(next)
		runCtx, cancel := context.WithCancel(ctx)
		next.cancel = cancel
		job := next.job()
		r := run(func() {
			p.run(runCtx, next, job)
			cancel()
		})
		select {
		case p.idle <- r: // somebody has nothing to do
		default:
			wg.Go(func() { p.work(ctx, r) })
		}
	}
	return 0, false
}

// run is one run that is due, handed from one goroutine to another.
type run func()

// idleFor is how long a goroutine waits for another run: a new one would have to
// grow its stack each time, which costs a tenth of a probe.
const idleFor = 2 * time.Second

// work does runs, one after another, until for a while there is none.
func (p *Prober) work(ctx context.Context, r run) {
	timer := time.NewTimer(idleFor)
	defer timer.Stop()
	for {
		r()
		timer.Reset(idleFor)
		select {
		case r = <-p.idle:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// grid gathers the runs that are due about the same time: waking up costs more
// than some probes do.
const grid = 10 * time.Millisecond

// ahead is how far the next line of the grid is from t.
func ahead(t time.Time) time.Duration {
	if past := t.Sub(t.Truncate(grid)); past > 0 {
		return grid - past
	}
	return 0
}

// enqueueLocked queues a probe, and wakes the loop when nothing is due sooner.
func (p *Prober) enqueueLocked(pr *probe) {
	p.queue.add(pr)
	if pr.index != 0 {
		return
	}
	select {
	case p.poke <- struct{}{}:
	default: // it is awake
	}
}
