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
	"podd/plugins/loop"
)

// Waker is notified of changes. None of the calls may block.
type Waker interface {
	// Changed says that the health of the pod's devices has changed, or that one of its
	// containers that waits for devices can make progress.
	Changed(uid pod.UID)
	// AdmitAgain says that pods that wait for admission, or were rejected, may have their
	// devices now.
	AdmitAgain()
	// NodeChanged says that Resources has changed.
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
	// grace is how long a resource without a plugin still counts as the node's.
	grace time.Duration
	// settle is how long after the start pods wait for known plugins that have not
	// registered again. newcomers is how long static pods wait for unknown ones.
	settle, newcomers time.Duration
	// retry is the delay between attempts to admit a pod after its plugin has returned an
	// error.
	retry wake.Backoff
}

// Upstream has no deadline for Allocate, GetPreferredAllocation and GetDevicePluginOptions;
// that of PreStartContainer is KubeletPreStartContainerRPCTimeoutInSecs, the grace period
// endpointStopGracePeriod. Upstream's own plugins take ten seconds to register again.
var upstreamTimes = times{
	dial: 10 * time.Second, options: 10 * time.Second, allocate: 2 * time.Minute, prefer: 30 * time.Second, preStart: 30 * time.Second,
	grace: 5 * time.Minute, settle: 30 * time.Second, newcomers: 10 * time.Second, retry: wake.Backoff{First: 10 * time.Second, Last: 5 * time.Minute},
}

// Manager holds the node's device plugins and the devices that pods have. Create it with
// New; Run serves plugins.
type Manager struct {
	dir        string // of the sockets
	checkpoint checkpoint.File[saved]
	waker      Waker
	log        *slog.Logger
	metrics    *metrics
	times      times
	loop       *loop.Loop // starts plugins, allocations, and due work

	saving sync.Mutex // held while the checkpoint is written

	mu        sync.Mutex // guards what follows
	resources map[string]*resource
	pods      map[pod.UID]*owner
	// waiting are the pods with a container that waits for its devices.
	waiting map[pod.UID]bool
	// settled and newcomers are the times until which pods wait for plugins after the
	// start: for those of an earlier podd, and for new ones. They are zero once that time
	// has passed.
	settled, newcomers time.Time
	// generation counts changes that may let a rejected pod have its devices.
	generation uint64
	unsaved    bool
	fresh      bool   // there was no checkpoint
	damaged    string // why the checkpoint cannot be used
	broken     string // where it is then, as a clause
	// registrationError says why plugins cannot register.
	registrationError string
}

// New reads the checkpoint; if there is none, Run writes one. It starts nothing.
func New(c Config) *Manager {
	m := &Manager{
		dir: filepath.Join(c.RootDir, "device-plugins"), checkpoint: newCheckpoint(filepath.Join(c.RootDir, "devices.json")),
		waker: c.Waker, log: c.Log, metrics: newMetrics(c.Metrics), times: upstreamTimes, loop: loop.New(),
		resources: map[string]*resource{}, pods: map[pod.UID]*owner{}, waiting: map[pod.UID]bool{},
	}
	m.settled, m.newcomers = time.Now().Add(m.times.settle), time.Now().Add(m.times.newcomers)
	m.restore()
	return m
}

// Fresh says that no podd has ever run with this root directory: the devices that the node
// had are unknown.
func (m *Manager) Fresh() bool { return m.fresh }

// Run serves plugins until ctx ends. Pods then keep their devices. It returns nil.
func (m *Manager) Run(ctx context.Context) error {
	var serve sync.WaitGroup
	defer serve.Wait()
	if stop, err := m.listen(&serve); err != nil {
		m.log.Error("cannot listen for device plugins: none can register", "dir", m.dir, "error", err)
		m.mu.Lock()
		m.registrationError = err.Error()
		m.mu.Unlock()
	} else {
		defer stop()
	}
	m.loop.Run(ctx, m.expire)
	return nil
}

// Problems returns the problems that `podd ps` shows.
func (m *Manager) Problems() (all []pod.Problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.registrationError != "" {
		all = append(all, pod.Problem{Origin: m.dir, Message: "no device plugin can register: " + m.registrationError, Hint: "restart podd when that is remedied"})
	}
	if m.damaged != "" {
		all = append(all, pod.Problem{Origin: m.checkpoint.Path, Warning: true,
			Message: "it is not known which pods have which devices: " + m.damaged,
			Hint:    "pods that ran before podd was started may share devices with newer ones: restart those that have some; " + m.broken})
	}
	return all
}

// news collects who must be told about a change once the lock is free.
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

// betterLocked says that plugins may now grant what they refused before.
func (m *Manager) betterLocked(n *news) {
	m.generation++
	m.freedLocked(n)
}

// freedLocked says that devices that were unavailable may now be free.
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

// expire does the work that is due at now, saves changes, and returns when something will
// be due next; zero for never.
func (m *Manager) expire(now time.Time) (next time.Time) {
	due := loop.Deadlines{Now: now}
	var n news
	m.mu.Lock()
	for name, r := range m.resources {
		if r.plugin == nil && !r.gone && due.Due(r.stopped.Add(m.times.grace)) {
			m.log.Info("device plugin has not come back: its resource is gone", "resource", name)
			r.gone, r.devices, n.node, m.unsaved = true, nil, true, true
		}
	}
	for _, o := range m.pods {
		if f := o.failed; f != nil && !f.due && due.Due(f.until) {
			f.due, n.admit = true, true
		}
	}
	for _, until := range []*time.Time{&m.settled, &m.newcomers} {
		if !until.IsZero() && due.Due(*until) {
			*until = time.Time{}
			m.betterLocked(&n)
		}
	}
	m.mu.Unlock()
	m.tell(n)
	m.saveIfNeeded()
	return due.Next
}
