package dra

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourcev1 "k8s.io/api/resource/v1"

	"podd/internal/checkpoint"
	"podd/internal/keylock"
	"podd/internal/pod"
	"podd/internal/wake"
	"podd/plugins/loop"
)

// Cluster is the apiserver. Both calls block until it has answered, or ctx ends.
type Cluster interface {
	ResourceClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	// DeleteResourceSlices deletes the ResourceSlices of a node and a driver; "" means all
	// drivers.
	DeleteResourceSlices(ctx context.Context, node, driver string) error
}

// Waker is called for pods that can make progress, or have devices with a changed health.
// It must not block.
type Waker interface{ Changed(uid pod.UID) }

// Config configures a Manager. All fields are required.
type Config struct {
	// RootDir is podd's --root-dir; it exists.
	RootDir  string
	NodeName string
	Cluster  Cluster
	Waker    Waker
	Log      *slog.Logger
	Metrics  prometheus.Registerer
}

// times are the deadlines and waits.
type times struct {
	call time.Duration // of a driver
	// away is how long a driver may be away before its ResourceSlices are deleted.
	away                 time.Duration
	wipe                 wake.Backoff  // between attempts to delete them
	leftovers            time.Duration // between attempts to unprepare the claims of gone pods
	healthRetry, healthy time.Duration // until another stream; how long a report is valid
}

// Upstream's: defaultClientCallTimeout, defaultWipingDelay, wipeResourceSlices,
// defaultReconcilePeriod, DRAPluginManager.add and DefaultHealthTimeout.
var upstreamTimes = times{
	call: 45 * time.Second, away: 30 * time.Second, wipe: wake.Backoff{First: time.Second, Last: 5 * time.Minute},
	leftovers: time.Minute, healthRetry: 5 * time.Second, healthy: 30 * time.Second,
}

// Manager holds the node's drivers, and the claims that pods use. Create it with New.
type Manager struct {
	checkpoint checkpoint.File[saved]
	node       string
	cluster    Cluster
	waker      Waker
	log        *slog.Logger
	metrics    *metrics
	times      times
	loop       *loop.Loop // watches over drivers, and does due work

	gates  keylock.Locks[string] // by claim.key: held while drivers are called for a claim
	saving sync.Mutex            // held while the checkpoint is written

	mu sync.Mutex // guards what follows
	// claims are those that pods use, by key. Whoever changes one holds its gate, too.
	claims map[string]*claim
	// drivers maps each driver to its registered instances, the oldest first.
	drivers map[string][]*instance
	// known are the drivers that metrics may name.
	known map[string]bool
	// waiting maps a driver's name to the pods that wait for it.
	waiting map[string]map[pod.UID]bool
	// leftovers are pods that are gone but still have claims to unprepare.
	leftovers map[pod.UID]bool
	retryAt   time.Time // the next attempt
	retrying  bool
	// wipes maps each absent driver to the time at which its ResourceSlices will be
	// deleted; wiping has the deletions in progress.
	wipes  map[string]time.Time
	wiping map[string]*wipe
	// revision counts changes of the saved state; written is the revision in the file.
	revision, written uint64
	damaged           string // why the checkpoint cannot be used
	broken            string // where it is then, as a clause
}

// New reads the checkpoint. It starts nothing.
func New(c Config) *Manager {
	m := &Manager{
		checkpoint: newCheckpoint(filepath.Join(c.RootDir, "dra.json")), node: c.NodeName, cluster: c.Cluster, waker: c.Waker, log: c.Log,
		times: upstreamTimes, loop: loop.New(),
		claims: map[string]*claim{}, drivers: map[string][]*instance{}, known: map[string]bool{},
		waiting: map[string]map[pod.UID]bool{}, leftovers: map[pod.UID]bool{}, wipes: map[string]time.Time{}, wiping: map[string]*wipe{},
	}
	m.metrics = newMetrics(c.Metrics, m.inUse)
	m.restore()
	return m
}

// Run watches over drivers until ctx ends. Everything then stays prepared. It returns nil.
func (m *Manager) Run(ctx context.Context) error {
	m.loop.Run(ctx, m.expire)
	return nil
}

// Problems returns the problems that `podd ps` shows.
func (m *Manager) Problems() (all []pod.Problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.damaged != "" {
		all = append(all, pod.Problem{Origin: m.checkpoint.Path, Warning: true,
			Message: "it is not known which pods use which ResourceClaims: " + m.damaged,
			Hint:    "what was prepared before podd was started is unprepared by nobody: restart the pods with claims, and their drivers; " + m.broken})
	}
	for _, key := range slices.Sorted(maps.Keys(m.claims)) {
		if c := m.claims[key]; c.failure != "" {
			all = append(all, pod.Problem{Origin: "ResourceClaim " + key, Warning: true,
				Message: "its pod has ended and it cannot be unprepared: " + c.failure,
				Hint:    "the pod's end is not reported before; look at the driver"})
		}
	}
	return all
}

// tell wakes pods; the lock must be free.
func (m *Manager) tell(pods map[pod.UID]bool) {
	for uid := range pods {
		m.waker.Changed(uid)
	}
}

// expire does the work that is due at now and returns when something will be due next; zero
// for never.
func (m *Manager) expire(now time.Time) (next time.Time) {
	due := loop.Deadlines{Now: now}
	m.mu.Lock()
	for driver, at := range m.wipes {
		if due.Due(at) {
			delete(m.wipes, driver)
			m.wipeLocked(driver)
		}
	}
	if len(m.leftovers) > 0 && !m.retrying && due.Due(m.retryAt) {
		m.retrying = true
		m.loop.Go(m.retryLeftovers)
	}
	stale := m.expireHealthLocked(due.Due)
	m.mu.Unlock()
	m.tell(stale)
	return due.Next
}
