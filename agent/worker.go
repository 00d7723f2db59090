package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/allocation"
	"podd/agent/plan"
	"podd/internal/pod"
	"podd/internal/wake"
)

// worker runs and terminates one generation of one pod. Its goroutine is run; others
// only leave something in its mailbox.
type worker struct {
	agent *Agent
	uid   pod.UID
	name  string
	log   *slog.Logger
	poke  wake.Signal
	// order is poked, too, for requests that are never delayed: a new spec of the
	// pod, its termination, or a retry.
	order wake.Signal

	mu         sync.Mutex // guards what follows
	mail       mail
	interrupt  context.CancelCauseFunc // cancels the sync in progress; nil for none
	postStarts map[string]*postStart   // by container ID
	preStopped map[string]bool         // hooks that have started, by container ID
	finished   bool                    // the pod has completed
	released   bool                    // network, volumes and cgroup of a completed pod are released; run's goroutine alone changes it
	deferred   bool                    // a resize waits for room
	heeding    bool                    // a change of the pod's objects is to be looked at
	// allocation has the allocated resources; only run's goroutine changes it, and
	// may read it without the lock.
	allocation allocation.Allocation

	// What follows belongs to run's goroutine.
	phase     pod.Phase
	memory    plan.Memory
	startTime time.Time
	since     time.Time       // the same on the monotonic clock
	over      bool            // the pod has completed, now or before
	kept      kept            // the checkpoint of that
	accepted  *pod.Desired    // what was stored last; nil for nothing yet
	named     *v1.Pod         // whose objects are registered; nil for none
	logsOf    *v1.Pod         // the pod whose name leads to its logs at its removal; nil if it has none
	withheld  bool            // the pod has ended, and its claims are not unprepared: no report is made
	mounted   map[string]bool // the volumes that are ready: those that containers used then; nil if not all are
	unmounted string          // what the pod waits for until then
	awaiting  time.Time       // since when nothing but the apiserver's answers is missing; zero if they are not
	created   bool            // this podd created a sandbox
	leave     func()          // frees the slot among the sandboxes being started; nil for none
	// sandbox has the inputs of the pod's newest sandbox; nil until computed.
	sandbox *pod.SandboxInputs
	tries   int // syncs in a row that failed
	acted   acted
	told    told
	counted counted
	stops   map[string]*stopping // by container ID
	begun   map[string]string    // IDs of containers whose start is not known to be done, by name; never changed
	stopped wake.Signal          // notified when one of them is over
	adopted bool                 // the cgroup of a pod of an earlier podd is up to date
	// checkpointed is the allocation when the checkpoint was last compared.
	checkpointed *pod.Desired
	// restartsCounted: the restart counts were read from the logs.
	restartsCounted bool
	// spawn runs what goes on outside the syncs; it ends with the worker, or when its
	// function is called.
	spawn   func(func(context.Context)) context.CancelFunc
	unwatch context.CancelFunc // ends the watch over the pod's limits; nil for none
	// imageSince is when the start began to wait for an image, pulling what earlier
	// waits took.
	imageSince time.Time
	pulling    time.Duration
}

func newWorker(a *Agent, d *pod.Desired) *worker {
	name := d.Name()
	if d.Pod.Name == "" {
		name = "" // only its UID is known
	}
	w := &worker{
		agent:      a,
		uid:        d.UID(),
		name:       name,
		log:        a.log.With("pod", name, "uid", d.UID()),
		poke:       wake.New(),
		order:      wake.New(),
		mail:       mail{desired: d},
		allocation: a.restored(d),
		told:       told{states: make(map[string]pod.ContainerState)},
		postStarts: make(map[string]*postStart),
		preStopped: make(map[string]bool),
		stops:      make(map[string]*stopping),
		stopped:    wake.New(),
	}
	if s, known := a.begun.of(d.UID()); known {
		w.begun = s.Begun
	}
	if granted := w.allocation.Granted; granted != nil {
		w.memory.Before = granted.Pod
	}
	if k, ended := a.endedBefore(d); ended {
		w.startTime = k.StartTime
		if k.Reason != "" {
			w.mail.End, w.kept = &k.End, k
		} else {
			w.over, w.kept, w.told.over = true, k, true
		}
	}
	return w
}

// wakeSuppression is the longest time after a failed sync in which events do not wake the
// worker: the calls of such a sync cause some, and each would start the next one.
// Orders do wake it.
const wakeSuppression = time.Second

// run observes, decides and acts until the pod is removed or ctx ends.
func (w *worker) run(ctx context.Context) {
	life, end := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer end()
	w.spawn = func(do func(context.Context)) context.CancelFunc {
		ctx, cancel := context.WithCancel(life)
		beside.Go(func() {
			defer cancel()
			do(ctx)
		})
		return cancel
	}
	for w.phase != pod.PhaseGone && ctx.Err() == nil {
		wakeAt, again := w.sync(ctx)
		w.handleObjectChange()
		if w.tries > 0 {
			wake.Until(ctx, w.order, earliest(wakeAt, time.Now().Add(wakeSuppression)))
		}
		if !again {
			wake.Until(ctx, w.poke, wakeAt)
		}
	}
	w.agent.cfg.Objects.Unregister(w.uid)
	if w.phase == pod.PhaseGone {
		w.agent.cfg.Images.Forget(w.uid)
		w.agent.cfg.Probes.Forget(w.uid)
		w.agent.cfg.Status.Forget(w.uid)
		w.agent.cfg.Events.Gone(w.uid)
		w.count(pod.Observed{})
	}
}
