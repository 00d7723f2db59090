package agent

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"podd/agent/allocation"
	"podd/agent/backoff"
	"podd/internal/pod"
	"podd/internal/podstore"
	"podd/internal/slots"
	"podd/internal/wake"
)

// Agent is the sync loop and its workers.
type Agent struct {
	cfg         Config
	log         *slog.Logger
	metrics     *metrics
	startSlots  *slots.Slots
	logRemovals *logRemovals
	completions *checkpoints[completionCheckpoint]
	// allocated has the allocated resources of the pods that their source may resize.
	allocated *checkpoints[allocation.Checkpoint]
	// accepted has the specs of all pods that may have something in the runtime.
	accepted      podstore.Store
	pendingStarts *checkpoints[startCheckpoint]
	interruptions *checkpoints[interruption]

	workerDone chan *worker
	ping       chan chan struct{}
	strays     chan orphan
	leftovers  chan leftovers

	recheck wake.Signal // look again at what was kept on disk

	drained  wake.Signal      // a drain has begun or ended, or starts are no longer held
	released wake.Broadcaster // the answer of Released may have changed

	unknownWoken wake.Signal
	freed        wake.Signal            // a pod has released resources of the node
	freedBy      atomic.Pointer[string] // the trigger of the last notification of freed

	// admissionMu is held while the node decides about a pod or a resize, until its
	// allocation is visible to the next decision.
	admissionMu sync.Mutex

	mu       sync.Mutex // guards what any goroutine may request
	workers  map[pod.UID]*worker
	unknown  map[pod.UID]bool       // woken, without a worker
	lookups  map[pod.UID]bool       // pods without a worker that are being looked up
	foreign  map[pod.UID]bool       // another agent's, not observed again
	rejected map[pod.UID]rejection  // desired, and not admitted
	drains   map[chan struct{}]bool // requests to end all pods, and whether they wait for that
	holds    int                    // requests to start no pod
	allKnown bool                   // every source is ready, and its running pods have workers
	surveyed bool                   // the answer of Surveyed, once it is true

	// What follows belongs to the sync loop's goroutine.
	desired     map[pod.UID]*pod.Desired
	ready       map[pod.Source]bool      // sources that have sent their first update
	orphans     map[pod.UID]orphan       // running pods without a worker so far
	lastDesired map[pod.UID]*pod.Desired // what their source desired last, of those that it removed
	savedSpecs  map[pod.UID]bool         // pods with a spec that an earlier podd saved
	// deleted are the pods with a requested deletion, for as long as their source lists
	// them. The value is nil once the node has nothing left of the pod.
	deleted        map[pod.UID]*pod.Desired
	admissionDue   bool // something terminated or changed since admission was last retried
	readyAtCleanup int  // how many sources were ready when dropStaleCheckpoints last dropped checkpoints
	recovered      bool
	swept          bool
	busy           map[pod.UID]bool // left on disk because their processes still run
	rechecking     bool             // looking again at those
	recheckAgain   bool             // something has ended meanwhile
	runtimeErr     error            // why the runtime has not responded so far

	wg sync.WaitGroup // workers, lookups and log removals
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
	a := &Agent{
		cfg:           cfg,
		log:           cfg.Log,
		metrics:       newMetrics(cfg.Metrics),
		startSlots:    slots.New(cfg.ParallelStarts, slots.Unlimited, slowStart),
		logRemovals:   newLogRemovals(cfg.LogRemovalsDir),
		completions:   newCompletions(cfg.CompletedDir),
		allocated:     newAllocated(cfg.AllocatedDir),
		accepted:      newAccepted(cfg.AcceptedDir),
		pendingStarts: newStartCheckpoints(cfg.StartsDir),
		interruptions: newInterruptions(cfg.InterruptionsDir),
		workerDone:    make(chan *worker),
		ping:          make(chan chan struct{}),
		strays:        make(chan orphan),
		leftovers:     make(chan leftovers),
		workers:       make(map[pod.UID]*worker),
		desired:       make(map[pod.UID]*pod.Desired),
		ready:         make(map[pod.Source]bool),
		orphans:       make(map[pod.UID]orphan),
		lastDesired:   make(map[pod.UID]*pod.Desired),
		savedSpecs:    make(map[pod.UID]bool),
		deleted:       make(map[pod.UID]*pod.Desired),
		rejected:      make(map[pod.UID]rejection),
		recheck:       wake.New(),
		drained:       wake.New(),
		drains:        make(map[chan struct{}]bool),
		busy:          make(map[pod.UID]bool),
		unknownWoken:  wake.New(),
		freed:         wake.New(),
		unknown:       make(map[pod.UID]bool),
		lookups:       make(map[pod.UID]bool),
		foreign:       make(map[pod.UID]bool),
	}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(podCounts{a})
	}
	return a
}

// Run is the sync loop. It blocks until ctx ends or updates is closed, and returns
// after its workers have; containers keep running.
//
// Pods are started once the runtime has listed what is running: before that, the name
// of a pod may still be in use by a previous generation of it.
func (a *Agent) Run(ctx context.Context, updates <-chan pod.Update) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer a.wg.Wait()
	defer cancel(errors.New("podd is stopping"))
	if err := a.completions.read(); err != nil {
		a.log.Warn("cannot read which pods the node terminated: they may start again", "error", err)
	}
	if err := a.pendingStarts.read(); err != nil {
		a.log.Warn("cannot read which containers of some pods were being started: those whose start was interrupted count as failed", "error", err)
	}
	if err := a.interruptions.read(); err != nil {
		a.log.Warn("cannot read which pods the last shutdown of the machine was ending: one of them that does not restart may count as completed", "error", err)
	}
	if err := a.allocated.read(); err != nil {
		a.log.Warn("cannot read the allocated resources of some pods: assuming those that their manifests request", "error", err)
	}
	uids, err := a.accepted.UIDs()
	if err != nil {
		a.log.Warn("cannot list the specs of pods that an earlier podd has saved: those of removed pods stay", "error", err)
	}
	for _, uid := range uids {
		a.savedSpecs[uid] = true
	}
	running := make(chan recovery)
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
		case r := <-running:
			a.handleRecovery(r)
		case w := <-a.workerDone:
			a.forget(w)
		case <-a.freed:
			a.admissionDue = true
			a.wakeDeferred(a.lastFreed())
		case <-a.unknownWoken:
			a.identifyUnknown(ctx)
			continue
		case g := <-a.strays:
			a.adoptStray(g)
		case left := <-a.leftovers:
			a.removeLeftovers(ctx, left)
			continue
		case <-a.recheck:
			a.recheckLeftovers(ctx)
			continue
		case pong := <-a.ping:
			close(pong)
			continue
		case <-a.drained:
			a.admissionDue = true
		}
		a.reconcile(ctx)
	}
}

// Healthy returns nil if the sync loop responds before ctx ends.
func (a *Agent) Healthy(ctx context.Context) error {
	pong := make(chan struct{})
	select {
	case a.ping <- pong:
		return nil
	case <-ctx.Done():
		return errors.New("the sync loop does not respond")
	}
}

// apply takes in an update of a source.
func (a *Agent) apply(u pod.Update) {
	if !u.Provisional {
		a.ready[u.Source] = true
	}
	a.admissionDue = a.admissionDue || u.Op != pod.OpAdd
	for _, d := range u.Pods {
		deleted := u.Op == pod.OpDelete || d.Pod.DeletionTimestamp != nil
		if u.Op != pod.OpRemove && !deleted {
			a.desired[d.UID()] = d
			continue
		}
		a.noLongerDesired(d)
		if u.Op == pod.OpRemove {
			delete(a.deleted, d.UID())
		} else {
			a.delete(d)
		}
	}
	a.countDesired()
}

// noLongerDesired records that a source has removed a pod. It keeps the spec if the pod
// has no worker and podd may need the spec to terminate the pod in order. That is so if
// the pod runs and waits for its name, if it is not known yet what runs, or if the pod
// ran before a reboot and was then rejected.
func (a *Agent) noLongerDesired(d *pod.Desired) {
	uid := d.UID()
	delete(a.desired, uid)
	rejected := a.forgetRejection(uid)
	if !a.recovered {
		a.cfg.Status.Drop(uid) // it may run; the worker that ends it reports that
	}
	if rejected {
		a.cfg.Status.Forget(uid)
		a.orphans[uid] = orphan{Summary: pod.Summary{UID: uid, Name: d.Pod.Name, Namespace: d.Pod.Namespace, Source: d.Source}, rejected: true}
	}
	if _, runs := a.orphans[uid]; runs || !a.recovered {
		a.lastDesired[uid] = d
	}
}

// reconcile starts and stops workers for what is desired.
func (a *Agent) reconcile(ctx context.Context) {
	if !a.recovered {
		a.reportRuntimeDown()
		return
	}
	if a.draining() {
		a.drain(ctx)
		return
	}
	a.terminateDeleted(ctx)
	a.terminateOrphans(ctx)
	a.dropStaleCheckpoints()
	a.sweepOnce(ctx)
	a.mu.Lock()
	var missing []*pod.Desired
	for uid, d := range a.desired {
		if w := a.workers[uid]; w == nil {
			missing = append(missing, d)
		} else {
			w.update(d)
		}
	}
	for uid, w := range a.workers {
		_, listed := a.deleted[uid]
		w.setOrphan(a.desired[uid] == nil && !listed)
		if a.desired[uid] == nil {
			w.terminate("its manifest was removed")
		}
	}
	a.mu.Unlock()
	if len(missing) > 0 {
		a.startMissing(ctx, missing)
	}
	a.markAllKnown()
}

// Wake requests a sync of a pod, because of something that happened at the time at
// (zero for unknown). It is ignored if a sync that started later has observed that. A
// pod without a worker is identified, and terminated if it is not desired. Any
// goroutine may call it; it never blocks.
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
	a.notifyUnknown()
}

// WakeAll requests a sync of every pod, and retries the admission of rejected ones:
// the runtime was down. Any goroutine may call it.
func (a *Agent) WakeAll() {
	defer a.RecheckLeftovers()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		w.wake(time.Time{})
	}
}

// removeLogs removes the logs of a removed pod, unless the pod is desired again.
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

// defaultParallelStarts: starting a sandbox is CPU bound except for short waits, in
// which another one can proceed.
func defaultParallelStarts() int { return max(4, 2*runtime.NumCPU()) }
