package agent

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"podd/agent/backoff"
	"podd/agent/plan"
	"podd/internal/pod"
)

// Agent is the sync loop and its workers.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	starts  chan struct{}
	graves  *graves
	ends    *ends

	ended  chan *worker
	ping   chan chan struct{}
	strays chan pod.Glance
	left   chan leftovers

	poke  chan struct{}
	freed chan struct{} // a pod holds less of the node than before

	// granting is held while the node decides about a pod or a resize and until
	// the next one to ask sees what was granted.
	granting sync.Mutex

	mu      sync.Mutex // guards what any goroutine asks for
	workers map[pod.UID]*worker
	unknown map[pod.UID]bool    // woken, and no worker knows them
	foreign map[pod.UID]bool    // somebody else's, which costs no further look
	refused map[pod.UID]refusal // wanted, and not taken

	// What follows belongs to the sync loop's goroutine alone.
	wanted    map[pod.UID]*pod.Desired
	spoken    map[pod.Source]bool
	orphans   map[pod.UID]pod.Glance   // what runs and has no worker yet
	last      map[pod.UID]*pod.Desired // what orphans were meant to be, where it is known
	room      bool                     // something ended or changed since refused pods were last asked about
	forgot    int                      // sources of whose gone pods the ends were dropped
	recovered bool
	swept     bool
	away      error // why the runtime never answered, so far

	wg sync.WaitGroup // workers, look-ups and log removals
}

// New returns an agent that does nothing until Run.
func New(cfg Config) *Agent {
	if cfg.BackOff == (backoff.Policy{}) {
		cfg.BackOff = backoff.Default()
	}
	if cfg.ParallelStarts == 0 {
		cfg.ParallelStarts = defaultParallelStarts()
	}
	if cfg.LogRetention == 0 {
		cfg.LogRetention = time.Minute
	}
	if cfg.Probes == nil {
		cfg.Probes = noProbes{}
	}
	if cfg.Hooks == nil {
		cfg.Hooks = noHooks{}
	}
	if cfg.Admitter == nil {
		cfg.Admitter = everyPod{}
	}
	return &Agent{
		cfg:     cfg,
		log:     cfg.Log,
		metrics: newMetrics(cfg.Metrics),
		starts:  make(chan struct{}, cfg.ParallelStarts),
		graves:  newGraves(cfg.Graves),
		ends:    newEnds(cfg.Ended),
		ended:   make(chan *worker),
		ping:    make(chan chan struct{}),
		strays:  make(chan pod.Glance),
		left:    make(chan leftovers),
		workers: make(map[pod.UID]*worker),
		wanted:  make(map[pod.UID]*pod.Desired),
		spoken:  make(map[pod.Source]bool),
		orphans: make(map[pod.UID]pod.Glance),
		last:    make(map[pod.UID]*pod.Desired),
		refused: make(map[pod.UID]refusal),
		poke:    make(chan struct{}, 1),
		freed:   make(chan struct{}, 1),
		unknown: make(map[pod.UID]bool),
		foreign: make(map[pod.UID]bool),
	}
}

// Run is the sync loop. It blocks until ctx ends or updates is closed, and
// returns after its workers have; containers go on.
//
// Pods are taken up once the runtime has listed what already runs: before
// that, nobody can know whether a pod's name is still held by a former
// generation of it.
func (a *Agent) Run(ctx context.Context, updates <-chan pod.Update) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer a.wg.Wait()
	defer cancel(errors.New("podd is stopping"))
	if err := a.ends.read(); err != nil {
		a.log.Warn("pods that the node had ended may start again", "error", err)
	}
	running := make(chan found)
	a.wg.Go(func() { a.recover(ctx, running) })
	a.wg.Go(func() { a.graves.run(ctx, a.removeLogs) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case u, ok := <-updates:
			if !ok {
				return nil
			}
			a.apply(u)
		case f := <-running:
			a.recoverWith(f)
		case w := <-a.ended:
			a.forget(w)
		case <-a.freed:
			a.room = true
			a.wakeDeferred()
		case <-a.poke:
			a.lookAtUnknown(ctx)
			continue
		case g := <-a.strays:
			a.adoptStray(g)
		case left := <-a.left:
			a.endLeftovers(ctx, left)
			continue
		case pong := <-a.ping:
			close(pong)
			continue
		}
		a.reconcile(ctx)
	}
}

// Healthy returns nil when the sync loop answers before ctx ends.
func (a *Agent) Healthy(ctx context.Context) error {
	pong := make(chan struct{})
	select {
	case a.ping <- pong:
		return nil
	case <-ctx.Done():
		return errors.New("the sync loop does not answer")
	}
}

// apply notes what a source wants.
func (a *Agent) apply(u pod.Update) {
	a.spoken[u.Source] = true
	a.room = a.room || u.Op != pod.OpAdd
	for _, d := range u.Pods {
		deleted := u.Op == pod.OpDelete || d.Pod.DeletionTimestamp != nil
		if u.Op != pod.OpRemove && !deleted {
			a.wanted[d.UID()] = d
			continue
		}
		a.unwant(d)
		if deleted {
			a.delete(d)
		}
	}
	a.metrics.desired.Set(float64(len(a.wanted)))
}

// unwant notes that nobody wants a pod any more. What it was meant to be is kept
// where no worker has it and something of it may have to be ended in order: it
// runs and waits for its name, nothing is known yet of what runs, or it ran
// before a boot and was then refused.
func (a *Agent) unwant(d *pod.Desired) {
	uid := d.UID()
	delete(a.wanted, uid)
	refused := a.unrefuse(uid)
	if refused || !a.recovered {
		a.cfg.Status.Forget(uid)
	}
	if refused {
		a.orphans[uid] = pod.Glance{UID: uid, Name: d.Pod.Name, Namespace: d.Pod.Namespace, Source: d.Source}
	}
	if _, runs := a.orphans[uid]; runs || !a.recovered {
		a.last[uid] = d
	}
}

// reconcile brings the workers in line with what is wanted.
func (a *Agent) reconcile(ctx context.Context) {
	if !a.recovered {
		a.reportAway()
		return
	}
	a.endOrphans(ctx)
	a.forgetEnds()
	a.sweepOnce(ctx)
	a.mu.Lock()
	var missing []*pod.Desired
	for uid, d := range a.wanted {
		if w := a.workers[uid]; w == nil {
			missing = append(missing, d)
		} else {
			w.want(d)
		}
	}
	for uid, w := range a.workers {
		if a.wanted[uid] == nil {
			w.end("its manifest is gone")
		}
	}
	a.mu.Unlock()
	if len(missing) == 0 {
		return
	}
	held := a.heldNames()
	sortBySeen(missing)
	// What runs already has its ports, whatever the order of the manifests.
	slices.SortStableFunc(missing, func(x, y *pod.Desired) int { return a.rank(x) - a.rank(y) })
	defer func() { a.room = false }()
	for _, d := range missing {
		if held[d.Name()] {
			continue
		}
		held[d.Name()] = true
		a.granting.Lock()
		if a.admits(d) {
			a.start(ctx, d, "")
		}
		a.granting.Unlock()
	}
}

// rank is 0 for a pod that runs and is to be adopted, 1 for one that others were
// ended for, 2 for any other.
func (a *Agent) rank(d *pod.Desired) int {
	if _, runs := a.orphans[d.UID()]; runs {
		return 0
	}
	if r, _ := a.refusal(d.UID()); len(r.Preempt) > 0 {
		return 1
	}
	return 2
}

// delete asks for the end of a pod that its source still lists, with the grace
// period that was asked for; asking again may shorten it.
func (a *Agent) delete(d *pod.Desired) {
	a.mu.Lock()
	w := a.workers[d.UID()]
	a.mu.Unlock()
	if w != nil {
		w.want(d)
		w.endWithin(plan.GracePeriod(d.Pod), "its deletion was asked for")
	}
}

// heldNames are the namespace/names that must not be started: a worker has
// them, or something runs under them that may yet turn out to be unwanted.
func (a *Agent) heldNames() map[string]bool {
	held := make(map[string]bool)
	a.mu.Lock()
	for _, w := range a.workers {
		held[w.name] = true
	}
	a.mu.Unlock()
	for uid, g := range a.orphans {
		if a.wanted[uid] == nil {
			held[g.Namespace+"/"+g.Name] = true
		}
	}
	return held
}

// start makes a worker. One of a pod that is not wanted begins with the end;
// unwanted says why.
func (a *Agent) start(ctx context.Context, d *pod.Desired, unwanted string) {
	w := newWorker(a, d)
	if unwanted != "" {
		w.end(unwanted)
	}
	delete(a.orphans, d.UID())
	delete(a.last, d.UID())
	a.mu.Lock()
	a.workers[d.UID()] = w
	delete(a.foreign, d.UID())
	a.mu.Unlock()
	a.wg.Go(func() {
		w.run(ctx)
		select {
		case a.ended <- w:
		case <-ctx.Done():
		}
	})
}

// forget drops a worker that has returned; its name is free again. A wake-up
// that came after its last look is not lost with it.
func (a *Agent) forget(w *worker) {
	a.mu.Lock()
	delete(a.workers, w.uid)
	a.mu.Unlock()
	a.room = true
	a.wakeDeferred()
	select {
	case <-w.poke:
		a.Wake(w.uid, time.Time{})
	default:
	}
}

// Wake asks for another look at a pod, because of something that happened at
// the time at (zero for unknown). A look that began later has seen it and is
// not repeated. For a pod that no worker knows, the agent finds out what it is
// and ends it when nobody wants it. Any goroutine may call it; it never blocks.
func (a *Agent) Wake(uid pod.UID, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.workers[uid]; w != nil {
		w.wake(at)
		return
	}
	if a.foreign[uid] {
		return
	}
	a.unknown[uid] = true
	a.pokeUnknown()
}

// WakeAll asks for another look at every pod: the runtime was away, and who was
// refused meanwhile should try again. Any goroutine may call it.
func (a *Agent) WakeAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		w.wake(time.Time{})
	}
}

// removeLogs removes a gone pod's logs, unless the pod came back.
func (a *Agent) removeLogs(g grave) {
	a.mu.Lock()
	back := a.workers[g.UID] != nil
	a.mu.Unlock()
	var err error
	if !back {
		err = a.cfg.Logs.RemoveLogs(g.pod())
	}
	if err == nil {
		err = a.graves.stones.remove(g.UID)
	}
	if err != nil {
		a.log.Warn("logs of a gone pod stay", "pod", g.Namespace+"/"+g.Name, "uid", g.UID, "error", err)
	}
}

// defaultParallelStarts: starting a sandbox is bound by the processor but for
// moments of waiting, in which another gets on.
func defaultParallelStarts() int { return max(4, 2*runtime.NumCPU()) }
