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
	// RetryAdmission says that pods that wait for admission, or were rejected, may have their
	// devices now.
	RetryAdmission()
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
	// knownPluginWait is how long after the start pods wait for known plugins that have not
	// registered again. newPluginWait is how long static pods wait for unknown ones.
	knownPluginWait, newPluginWait time.Duration
	// retry is the delay between attempts to admit a pod after its plugin has returned an
	// error.
	retry wake.Backoff
}

// Upstream has no deadline for Allocate, GetPreferredAllocation and GetDevicePluginOptions;
// that of PreStartContainer is KubeletPreStartContainerRPCTimeoutInSecs, the grace period
// endpointStopGracePeriod. Upstream's own plugins take ten seconds to register again.
var upstreamTimes = times{
	dial: 10 * time.Second, options: 10 * time.Second, allocate: 2 * time.Minute, prefer: 30 * time.Second, preStart: 30 * time.Second,
	grace: 5 * time.Minute, knownPluginWait: 30 * time.Second, newPluginWait: 10 * time.Second, retry: wake.Backoff{Initial: 10 * time.Second, Max: 5 * time.Minute},
}

// Manager holds the node's device plugins and the devices that pods have. Create it with
// New; Run serves plugins.
type Manager struct {
	dir        string // of the sockets
	checkpoint checkpoint.File[checkpointData]
	waker      Waker
	log        *slog.Logger
	metrics    *metrics
	times      times
	loop       *loop.Loop // starts plugins, allocations, and due work

	saving sync.Mutex // held while the checkpoint is written

	mu        sync.Mutex // guards what follows
	resources map[string]*resource
	pods      map[pod.UID]*podDevices
	// waiting are the pods with a container that waits for its devices.
	waiting map[pod.UID]bool
	// knownPluginsUntil and newPluginsUntil are the times until which pods wait after the
	// start: all pods for plugins of an earlier podd, static pods for new ones. They are zero
	// once that time has passed.
	knownPluginsUntil, newPluginsUntil time.Time
	// generation counts changes that may let a rejected pod have its devices.
	generation      uint64
	unsaved         bool
	noCheckpoint    bool   // there was no checkpoint
	checkpointError string // why the checkpoint cannot be used
	checkpointHint  string // where it is then, as a clause
	// registrationError says why plugins cannot register.
	registrationError string
}

// New reads the checkpoint; if there is none, Run writes one. It starts nothing.
func New(c Config) *Manager {
	m := &Manager{
		dir: filepath.Join(c.RootDir, "device-plugins"), checkpoint: newCheckpoint(filepath.Join(c.RootDir, "devices.json")),
		waker: c.Waker, log: c.Log, metrics: newMetrics(c.Metrics), times: upstreamTimes, loop: loop.New(),
		resources: map[string]*resource{}, pods: map[pod.UID]*podDevices{}, waiting: map[pod.UID]bool{},
	}
	m.knownPluginsUntil, m.newPluginsUntil = time.Now().Add(m.times.knownPluginWait), time.Now().Add(m.times.newPluginWait)
	m.restore()
	return m
}

// ShouldResetExtendedResourceCapacity says that no podd has ever run with this root
// directory: the devices that the node had are unknown.
func (m *Manager) ShouldResetExtendedResourceCapacity() bool { return m.noCheckpoint }

// Run serves plugins until ctx ends. Pods then keep their devices. It returns nil.
func (m *Manager) Run(ctx context.Context) error {
	var serve sync.WaitGroup
	defer serve.Wait()
	if stop, err := m.serveRegistration(&serve); err != nil {
		m.log.Error("cannot listen for device plugins: none can register", "dir", m.dir, "error", err)
		m.mu.Lock()
		m.registrationError = err.Error()
		m.mu.Unlock()
	} else {
		defer stop()
	}
	m.loop.Run(ctx, m.runDueWork)
	return nil
}

// Problems returns the problems that `podd ps` shows.
func (m *Manager) Problems() (all []pod.Problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.registrationError != "" {
		all = append(all, pod.Problem{Origin: m.dir, Message: "no device plugin can register: " + m.registrationError, Hint: "restart podd when that is remedied"})
	}
	if m.checkpointError != "" {
		all = append(all, pod.Problem{Origin: m.checkpoint.Path, Warning: true,
			Message: "it is not known which pods have which devices: " + m.checkpointError,
			Hint:    "pods that ran before podd was started may share devices with newer ones: restart those that have some; " + m.checkpointHint})
	}
	return all
}

// notification collects whom to notify of a change once the lock is free.
type notification struct {
	pods                    map[pod.UID]bool
	admitAgain, nodeChanged bool
}

func (n *notification) addPod(uid pod.UID) {
	if n.pods == nil {
		n.pods = map[pod.UID]bool{}
	}
	n.pods[uid] = true
}

// newGenerationLocked says that plugins may now grant what they refused before.
func (m *Manager) newGenerationLocked(n *notification) {
	m.generation++
	m.devicesFreedLocked(n)
}

// devicesFreedLocked says that devices that were unavailable may now be free.
func (m *Manager) devicesFreedLocked(n *notification) {
	n.admitAgain = true
	for uid := range m.waiting {
		n.addPod(uid)
	}
	clear(m.waiting)
}

func (m *Manager) notify(n notification) {
	for uid := range n.pods {
		m.waker.Changed(uid)
	}
	if n.admitAgain {
		m.waker.RetryAdmission()
	}
	if n.nodeChanged {
		m.waker.NodeChanged()
	}
}

// runDueWork does the work that is due at now, saves changes, and returns when something will
// be due next; zero for never.
func (m *Manager) runDueWork(now time.Time) (next time.Time) {
	due := loop.Deadlines{Now: now}
	var n notification
	m.mu.Lock()
	for name, r := range m.resources {
		if len(r.plugins) == 0 && !r.gone && due.Due(r.stoppedAt.Add(m.times.grace)) {
			m.log.Info("device plugin has not come back: its resource is gone", "resource", name)
			r.gone, r.devices, n.nodeChanged, m.unsaved = true, nil, true, true
		}
	}
	for _, o := range m.pods {
		if f := o.failure; f != nil && !f.retryDue && due.Due(f.retryAt) {
			f.retryDue, n.admitAgain = true, true
		}
	}
	for _, until := range []*time.Time{&m.knownPluginsUntil, &m.newPluginsUntil} {
		if !until.IsZero() && due.Due(*until) {
			*until = time.Time{}
			m.newGenerationLocked(&n)
		}
	}
	m.mu.Unlock()
	m.notify(n)
	m.saveIfNeeded()
	return due.Next
}
