package devices

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podd/internal/checkpoint"
	"podd/internal/pod"
	"podd/internal/wake"
)

// Waker is told what has changed. None of the calls may block.
type Waker interface {
	// Changed: the pod's devices have another health, or a container of it that waits for
	// devices can make progress.
	Changed(uid pod.UID)
	// AdmitAgain: pods that wait for admission, or were rejected, may have their devices now.
	AdmitAgain()
	// NodeChanged: Resources has changed.
	NodeChanged()
}

// Config configures a Manager. All fields are required.
type Config struct {
	// RootDir is podd's --root-dir; it exists.
	RootDir string
	Waker   Waker
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// times are the deadlines and waits.
type times struct {
	dial, options, allocate, prefer, preStart time.Duration
	// grace is how long a resource without a plugin counts as one of the node.
	grace time.Duration
	// settle is how long after the start pods wait for plugins that have not registered again,
	// newcomers how long static pods do for those of which nothing is known.
	settle, newcomers time.Duration
	// retry is between attempts to admit a pod after its plugin has returned an error.
	retry wake.Backoff
}

// Upstream has no deadline for Allocate, GetPreferredAllocation and GetDevicePluginOptions;
// that of PreStartContainer is KubeletPreStartContainerRPCTimeoutInSecs, the grace period
// endpointStopGracePeriod. Upstream's own plugins take ten seconds to register again.
var upstreamTimes = times{
	dial: 10 * time.Second, options: 10 * time.Second, allocate: 2 * time.Minute, prefer: 30 * time.Second, preStart: 30 * time.Second,
	grace: 5 * time.Minute, settle: 30 * time.Second, newcomers: 10 * time.Second, retry: wake.Backoff{First: 10 * time.Second, Last: 5 * time.Minute},
}

// Manager has the node's device plugins and what pods have of their devices. Create it
// with New; Run serves plugins.
type Manager struct {
	dir        string // of the sockets
	checkpoint checkpoint.File[saved]
	waker      Waker
	log        *slog.Logger
	metrics    *metrics
	times      times
	poke       wake.Signal // there are tasks, or other deadlines

	saving sync.Mutex // held while the checkpoint is written

	mu        sync.Mutex // guards what follows
	resources map[string]*resource
	pods      map[pod.UID]*owner
	// waiting are the pods with a container that waits for its devices.
	waiting map[pod.UID]bool
	tasks   []func(context.Context) // for Run to start
	// settled and newcomers are until when plugins are waited for after the start, those of an
	// earlier podd and new ones; zero when that has passed.
	settled, newcomers time.Time
	// generation counts what may let a rejected pod have its devices.
	generation uint64
	unsaved    bool
	fresh      bool   // there was no checkpoint
	damaged    string // why the checkpoint cannot be used
	broken     string // where it is then, a clause
	deaf       string // why plugins cannot register
}

// New reads the checkpoint; where there is none, Run writes one. It starts nothing.
func New(c Config) *Manager {
	m := &Manager{
		dir: filepath.Join(c.RootDir, "device-plugins"), checkpoint: newCheckpoint(filepath.Join(c.RootDir, "devices.json")),
		waker: c.Waker, log: c.Log, metrics: newMetrics(c.Metrics), times: upstreamTimes, poke: wake.New(),
		resources: map[string]*resource{}, pods: map[pod.UID]*owner{}, waiting: map[pod.UID]bool{},
	}
	m.settled, m.newcomers = time.Now().Add(m.times.settle), time.Now().Add(m.times.newcomers)
	m.restore()
	return m
}

// Fresh says that no podd has ever run with this root directory: nothing is known of the
// devices that the node had.
func (m *Manager) Fresh() bool { return m.fresh }

// Run serves plugins until ctx ends, which leaves to pods what they have. It returns nil.
func (m *Manager) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if stop, err := m.listen(&work); err != nil {
		m.log.Error("cannot listen for device plugins: none can register", "dir", m.dir, "error", err)
		m.mu.Lock()
		m.deaf = err.Error()
		m.mu.Unlock()
	} else {
		defer stop()
	}
	m.loop(ctx, &work)
	return nil
}

// loop starts what is to be done and watches over deadlines, until ctx ends.
func (m *Manager) loop(ctx context.Context, work *sync.WaitGroup) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		m.mu.Lock()
		tasks := m.tasks
		m.tasks = nil
		m.mu.Unlock()
		for _, task := range tasks {
			work.Go(func() { task(ctx) })
		}
		if next := m.expire(time.Now()); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		m.saveIfNeeded()
		select {
		case <-ctx.Done():
			return
		case <-m.poke:
		case <-timer.C:
		}
	}
}

// Problems are those for `podd ps`.
func (m *Manager) Problems() (all []pod.Problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deaf != "" {
		all = append(all, pod.Problem{Origin: m.dir, Message: "no device plugin can register: " + m.deaf, Hint: "restart podd when that is remedied"})
	}
	if m.damaged != "" {
		all = append(all, pod.Problem{Origin: m.checkpoint.Path, Warning: true,
			Message: "it is not known which pods have which devices: " + m.damaged,
			Hint:    "pods that ran before podd was started may share devices with newer ones: restart those that have some; " + m.broken})
	}
	return all
}

// taskLocked has Run start a task.
func (m *Manager) taskLocked(task func(context.Context)) {
	m.tasks = append(m.tasks, task)
	m.pokeRun()
}

func (m *Manager) pokeRun() {
	m.poke.Notify()
}

// news is who is to be told of a change, once the lock is free.
type news struct {
	pods        map[pod.UID]bool
	admit, node bool
}

func (n *news) of(uid pod.UID) {
	if n.pods == nil {
		n.pods = map[pod.UID]bool{}
	}
	n.pods[uid] = true
}

// betterLocked: what plugins have refused they may give now, too.
func (m *Manager) betterLocked(n *news) {
	m.generation++
	m.freedLocked(n)
}

// freedLocked: devices that were not to be had may be so now.
func (m *Manager) freedLocked(n *news) {
	n.admit = true
	for uid := range m.waiting {
		n.of(uid)
	}
	clear(m.waiting)
}

func (m *Manager) tell(n news) {
	for uid := range n.pods {
		m.waker.Changed(uid)
	}
	if n.admit {
		m.waker.AdmitAgain()
	}
	if n.node {
		m.waker.NodeChanged()
	}
}

// expire does what is due at now and returns when something will be; zero for never.
func (m *Manager) expire(now time.Time) (next time.Time) {
	var n news
	m.mu.Lock()
	due := func(at time.Time) bool {
		if !now.Before(at) {
			return true
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
		return false
	}
	for name, r := range m.resources {
		if r.plugin == nil && !r.gone && due(r.stopped.Add(m.times.grace)) {
			m.log.Info("device plugin has not come back: its resource is gone", "resource", name)
			r.gone, r.devices, n.node, m.unsaved = true, nil, true, true
		}
	}
	for _, o := range m.pods {
		if f := o.failed; f != nil && !f.due && due(f.until) {
			f.due, n.admit = true, true
		}
	}
	for _, until := range []*time.Time{&m.settled, &m.newcomers} {
		if !until.IsZero() && due(*until) {
			*until = time.Time{}
			m.betterLocked(&n)
		}
	}
	m.mu.Unlock()
	m.tell(n)
	return next
}
