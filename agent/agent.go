package agent

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"podd/agent/allocation"
	"podd/agent/backoff"
	"podd/agent/plan"
	"podd/internal/pod"
)

// Agent is the sync loop and its workers.
type Agent struct {
	cfg         Config
	log         *slog.Logger
	metrics     *metrics
	starts      chan struct{}
	logRemovals *logRemovals
	ends        *checkpoints[kept]
	// allocated is what the node granted those pods that may desire something else.
	allocated *checkpoints[allocation.Checkpoint]

	ended  chan *worker
	ping   chan chan struct{}
	strays chan pod.Summary
	left   chan leftovers

	poke  chan struct{}
	freed chan struct{} // a pod holds less of the node than before

	// granting is held while the node decides about a pod or a resize and until
	// the next one to ask sees what was granted.
	granting sync.Mutex

	mu       sync.Mutex // guards what any goroutine asks for
	workers  map[pod.UID]*worker
	unknown  map[pod.UID]bool      // woken, and no worker knows them
	foreign  map[pod.UID]bool      // another's, which is not observed again
	rejected map[pod.UID]rejection // wanted, and not taken
	settled  bool                  // every source has spoken, and what runs of its pods was taken up

	// What follows belongs to the sync loop's goroutine alone.
	wanted    map[pod.UID]*pod.Desired
	spoken    map[pod.Source]bool
	orphans   map[pod.UID]pod.Summary  // what runs and has no worker yet
	last      map[pod.UID]*pod.Desired // what orphans were meant to be, where it is known
	room      bool                     // something ended or changed since rejected pods were last asked about
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
	if cfg.Objects == nil {
		cfg.Objects = noObjects{}
	}
	cfg.Parts = cfg.Parts.withDefaults()
	return &Agent{
		cfg:         cfg,
		log:         cfg.Log,
		metrics:     newMetrics(cfg.Metrics),
		starts:      make(chan struct{}, cfg.ParallelStarts),
		logRemovals: newLogRemovals(cfg.LogRemovals),
		ends:        newEnds(cfg.Ended),
		allocated:   newAllocated(cfg.Allocated),
		ended:       make(chan *worker),
		ping:        make(chan chan struct{}),
		strays:      make(chan pod.Summary),
		left:        make(chan leftovers),
		workers:     make(map[pod.UID]*worker),
		wanted:      make(map[pod.UID]*pod.Desired),
		spoken:      make(map[pod.Source]bool),
		orphans:     make(map[pod.UID]pod.Summary),
		last:        make(map[pod.UID]*pod.Desired),
		rejected:    make(map[pod.UID]rejection),
		poke:        make(chan struct{}, 1),
		freed:       make(chan struct{}, 1),
		unknown:     make(map[pod.UID]bool),
		foreign:     make(map[pod.UID]bool),
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
		a.log.Warn("cannot read which pods the node ended: they may start again", "error", err)
	}
	if err := a.allocated.read(); err != nil {
		a.log.Warn("cannot read what the node granted some pods: assuming what their source desires", "error", err)
	}
	running := make(chan found)
	a.wg.Go(func() { a.recover(ctx, running) })
	a.wg.Go(func() { a.logRemovals.run(ctx, a.removeLogs) })
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
// before a boot and was then rejected.
func (a *Agent) unwant(d *pod.Desired) {
	uid := d.UID()
	delete(a.wanted, uid)
	rejected := a.forgetRejection(uid)
	if rejected || !a.recovered {
		a.cfg.Status.Forget(uid)
	}
	if rejected {
		a.orphans[uid] = pod.Summary{UID: uid, Name: d.Pod.Name, Namespace: d.Pod.Namespace, Source: d.Source}
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
	a.forgetGone()
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
			w.end("its manifest was removed")
		}
	}
	a.mu.Unlock()
	if len(missing) > 0 {
		a.startMissing(ctx, missing)
	}
	a.completeOnce()
}

// startMissing takes up those wanted pods that have no worker and may have one.
func (a *Agent) startMissing(ctx context.Context, missing []*pod.Desired) {
	held := a.heldNames()
	candidates := make([]plan.Candidate, len(missing))
	for i, d := range missing {
		candidates[i] = a.candidate(d)
	}
	plan.StartOrder(candidates)
	defer func() { a.room = false }()
	for _, c := range candidates {
		if held[c.Desired.Name()] {
			continue
		}
		held[c.Desired.Name()] = true
		a.granting.Lock()
		if a.admits(c) {
			a.start(ctx, c.Desired, "")
		}
		a.granting.Unlock()
	}
}

// delete asks for the end of a pod that its source still lists, with the grace
// period that was asked for; asking again may shorten it.
func (a *Agent) delete(d *pod.Desired) {
	a.mu.Lock()
	w := a.workers[d.UID()]
	a.mu.Unlock()
	if w != nil {
		w.want(d)
		w.endWithin(plan.GracePeriod(d.Pod), "its deletion was requested")
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
// that came after its last sync is not lost with it.
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

// Wake asks for another sync of a pod, because of something that happened at
// the time at (zero for unknown). A sync that began later has observed it and is
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

// WakeAll asks for another sync of every pod: the runtime was away, and who was
// rejected meanwhile should try again. Any goroutine may call it.
func (a *Agent) WakeAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		w.wake(time.Time{})
	}
}

// removeLogs removes a gone pod's logs, unless the pod came back.
func (a *Agent) removeLogs(g logRemoval) {
	a.mu.Lock()
	back := a.workers[g.UID] != nil
	a.mu.Unlock()
	var err error
	if !back {
		err = a.cfg.Logs.RemoveLogs(g.pod())
	}
	if err == nil {
		err = a.logRemovals.files.remove(g.UID)
	}
	if err != nil {
		a.log.Warn("cannot remove the logs of a removed pod", "pod", g.Namespace+"/"+g.Name, "uid", g.UID, "error", err)
	}
}

// defaultParallelStarts: starting a sandbox is bound by the processor but for
// moments of waiting, in which another gets on.
func defaultParallelStarts() int { return max(4, 2*runtime.NumCPU()) }
