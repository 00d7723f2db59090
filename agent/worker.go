package agent

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/allocation"
	"podd/agent/plan"
	"podd/internal/pod"
	"podd/internal/wake"
)

// worker runs and terminates one generation of one pod. Its goroutine is run; other
// goroutines only leave requests in its mailbox.
type worker struct {
	agent *Agent
	uid   pod.UID
	name  string
	log   *slog.Logger
	poke  wake.Signal // something may have changed
	// urgent is notified, too, for requests that are never delayed: a new spec of the
	// pod, its termination, or a retry.
	urgent wake.Signal
	looked atomic.Bool // a sync has reported the pod, or could not observe it
	inbox

	// What follows belongs to run's goroutine.
	phase           pod.Phase
	memory          plan.Memory
	startTime       time.Time
	startTimeSteady time.Time // the same on the monotonic clock
	starting        startProgress
	stops           stops
	completion      completion
	stored          stored
	lastSync        syncResult
	reported        lastReport
	gauges          gaugeValues
	// spawn runs what goes on outside the syncs; it ends with the worker, or when its
	// function is called.
	spawn           func(func(context.Context)) context.CancelFunc
	stopLimitsWatch context.CancelFunc // ends the watch over the pod's limits; nil for none
}

// inbox is the part of a worker that other goroutines write.
type inbox struct {
	mu            sync.Mutex // guards what follows
	mail          mail
	interrupt     context.CancelCauseFunc // cancels the sync in progress; nil for none
	postStarts    map[string]*postStart   // by container ID
	preStopped    map[string]bool         // hooks that have started, by container ID
	finished      bool                    // the pod has completed
	released      bool                    // network, volumes and cgroup of a completed pod are released; run's goroutine alone changes it
	deferred      bool                    // a resize waits for room
	awaitsObjects bool                    // a change of the pod's objects wakes it
	orphan        bool                    // its source no longer lists it
	shutDown      bool                    // a shutdown of the machine ends it, and it starts again
	reached       pod.Phase               // a copy of phase for other goroutines
	// allocation has the allocated resources; only run's goroutine changes it, and
	// may read it without the lock.
	allocation allocation.Allocation
}

// startProgress is how far the pod's start is, and what it waits for.
type startProgress struct {
	releaseSlot    func()          // frees the slot among the sandboxes being started; nil for none
	mounted        map[string]bool // the volumes that are ready: those that containers used then; nil if not all are
	volumesWait    string          // what the pod waits for until then
	awaitingSince  time.Time       // since when nothing but the apiserver's answers is missing; zero if they are not
	sandboxCreated bool            // this podd created a sandbox
	usernsUnproven bool            // the sandbox has a user namespace, and no container has started in it yet
	// sandbox has the inputs of the pod's newest sandbox; nil until computed.
	sandbox       *pod.SandboxInputs
	pendingStarts map[string]string // IDs, by name, of containers that may not have finished starting; never changed
	// pullingSince is when the start began to wait for an image, pulling what earlier
	// waits took.
	pullingSince time.Time
	pulling      time.Duration
}

// stops are the terminations of containers that are in progress.
type stops struct {
	byID  map[string]*containerStop // by container ID
	ended wake.Signal               // notified when one of them is over
}

// completion is the end of a pod that cannot run any more.
type completion struct {
	reached        bool                 // now or before
	rerun          bool                 // a retry came when it was reached, but the sandbox not stopped
	record         completionCheckpoint // the checkpoint of that
	claimsPrepared bool                 // its claims are not unprepared yet: no report is made
}

// stored is what was written down, or handed to others, about the pod.
type stored struct {
	accepted        *pod.Desired // the accepted pod; nil for nothing yet
	registered      *v1.Pod      // the pod as registered with Objects; nil for none
	checked         *pod.Desired // the pod whose features were last checked; nil for none
	logsOf          *v1.Pod      // the pod with the name of the logs to remove with it; nil if it has none
	allocation      *pod.Desired // the allocation when the checkpoint was last compared
	cgroupAdopted   bool         // the cgroup of a pod of an earlier podd is up to date
	restartsCounted bool         // the restart counts were read from the logs
}

func newWorker(a *Agent, d *pod.Desired) *worker {
	name := d.Name()
	if d.Pod.Name == "" {
		name = "" // only its UID is known
	}
	w := &worker{
		agent:  a,
		uid:    d.UID(),
		name:   name,
		log:    a.log.With("pod", name, "uid", d.UID()),
		poke:   wake.New(),
		urgent: wake.New(),
		inbox: inbox{
			mail: mail{desired: d}, allocation: a.restored(d),
			postStarts: make(map[string]*postStart), preStopped: make(map[string]bool),
		},
		reported: lastReport{states: make(map[string]pod.ContainerState)},
		stops:    stops{byID: make(map[string]*containerStop), ended: wake.New()},
	}
	if s, known := a.pendingStarts.get(d.UID()); known {
		w.starting.pendingStarts = s.Pending
	}
	if granted := w.allocation.Granted; granted != nil {
		w.memory.AdoptedPod = granted.Pod
	}
	if k, ended := a.endedBefore(d); ended {
		w.startTime = k.StartTime
		if k.Reason != "" {
			w.mail.End, w.completion.record = &k.Termination, k
		} else {
			w.completion.reached, w.completion.record, w.reported.completionSaved = true, k, true
		}
	}
	return w
}

// wakeSuppression is the longest time after a failed sync in which events do not wake the
// worker: the calls of such a sync cause some, and each would start the next one.
// Urgent requests do wake it.
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
		if w.lastSync.failures > 0 {
			wake.Until(ctx, w.urgent, earliest(wakeAt, time.Now().Add(wakeSuppression)))
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
		w.agent.cfg.Events.ForgetPod(w.uid)
		w.updateGauges(pod.Observed{})
	}
}
