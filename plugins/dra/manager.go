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
	// OptionalOperations is the feature gate DRAOptionalNodeOperations. With it, podd skips
	// calls of drivers for devices that do not need them. Without it, podd rejects such claims.
	OptionalOperations bool
	Log                *slog.Logger
	Metrics            prometheus.Registerer
}

// times are the deadlines and waits.
type times struct {
	call time.Duration // of a driver
	// wipeDelay is how long a driver may be away before its ResourceSlices are deleted.
	wipeDelay              time.Duration
	wipeBackoff            wake.Backoff  // between attempts to delete them
	unprepareRetry         time.Duration // between attempts to unprepare the claims of gone pods
	healthRetry, healthTTL time.Duration // until another stream; how long a report is valid
}

// Upstream's: defaultClientCallTimeout, defaultWipingDelay, wipeResourceSlices,
// defaultReconcilePeriod, DRAPluginManager.add and DefaultHealthTimeout.
var upstreamTimes = times{
	call: 45 * time.Second, wipeDelay: 30 * time.Second, wipeBackoff: wake.Backoff{Initial: time.Second, Max: 5 * time.Minute},
	unprepareRetry: time.Minute, healthRetry: 5 * time.Second, healthTTL: 30 * time.Second,
}

// Manager holds the node's drivers, and the claims that pods use. Create it with New.
type Manager struct {
	checkpoint checkpoint.File[checkpointData]
	node       string
	cluster    Cluster
	waker      Waker
	log        *slog.Logger
	metrics    *metrics
	times      times
	loop       *loop.Loop // watches over drivers, and does due work
	// optionalOperations is Config.OptionalOperations.
	optionalOperations bool

	claimLocks keylock.Locks[string] // by claim.key: held while drivers are called for a claim
	saving     sync.Mutex            // held while the checkpoint is written

	mu sync.Mutex // guards what follows
	// claims are those that pods use, by key. Whoever changes one holds its lock (claimLocks), too.
	claims map[string]*claim
	// drivers maps each driver to its registered instances, the oldest first.
	drivers map[string][]*instance
	// measuredDrivers are the drivers that metrics may name.
	measuredDrivers map[string]bool
	// waiting maps a driver's name to the pods that wait for it.
	waiting map[string]map[pod.UID]bool
	// orphanedPods are pods that are gone but still have claims to unprepare.
	orphanedPods map[pod.UID]bool
	retryAt      time.Time // the next attempt
	retrying     bool
	// wipeAt maps each absent driver to the time at which its ResourceSlices will be
	// deleted; wiping has the deletions in progress.
	wipeAt map[string]time.Time
	wiping map[string]*sliceDeletion
	// revision counts changes of the saved state; savedRevision is the revision in the file.
	revision, savedRevision uint64
	checkpointError         string // why the checkpoint cannot be used
	checkpointHint          string // where it is then, as a clause
}

// New reads the checkpoint. It starts nothing.
func New(c Config) *Manager {
	m := &Manager{
		checkpoint: newCheckpoint(filepath.Join(c.RootDir, "dra.json")), node: c.NodeName, cluster: c.Cluster, waker: c.Waker, log: c.Log,
		times: upstreamTimes, loop: loop.New(), optionalOperations: c.OptionalOperations,
		claims: map[string]*claim{}, drivers: map[string][]*instance{}, measuredDrivers: map[string]bool{},
		waiting: map[string]map[pod.UID]bool{}, orphanedPods: map[pod.UID]bool{},
		wipeAt: map[string]time.Time{}, wiping: map[string]*sliceDeletion{},
	}
	m.metrics = newMetrics(c.Metrics, m.inUse)
	m.restore()
	return m
}

// Run watches over drivers until ctx ends. Everything then stays prepared. It returns nil.
func (m *Manager) Run(ctx context.Context) error {
	m.loop.Run(ctx, m.runDueWork)
	return nil
}

// Problems returns the problems that `podd ps` shows.
func (m *Manager) Problems() (all []pod.Problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.checkpointError != "" {
		all = append(all, pod.Problem{Origin: m.checkpoint.Path, Warning: true,
			Message: "it is not known which pods use which ResourceClaims: " + m.checkpointError,
			Hint:    "what was prepared before podd was started is unprepared by nobody: restart the pods with claims, and their drivers; " + m.checkpointHint})
	}
	for _, key := range slices.Sorted(maps.Keys(m.claims)) {
		if c := m.claims[key]; c.unprepareError != "" {
			all = append(all, pod.Problem{Origin: "ResourceClaim " + key, Warning: true,
				Message: "its pod has ended and it cannot be unprepared: " + c.unprepareError,
				Hint:    "the pod's end is not reported before; look at the driver"})
		}
	}
	return all
}

// wakePods wakes pods; the lock must be free.
func (m *Manager) wakePods(pods map[pod.UID]bool) {
	for uid := range pods {
		m.waker.Changed(uid)
	}
}

// runDueWork does the work that is due at now and returns when something will be due next; zero
// for never.
func (m *Manager) runDueWork(now time.Time) (next time.Time) {
	due := loop.Deadlines{Now: now}
	m.mu.Lock()
	for driver, at := range m.wipeAt {
		if due.Due(at) {
			delete(m.wipeAt, driver)
			m.wipeLocked(driver)
		}
	}
	if len(m.orphanedPods) > 0 && !m.retrying && due.Due(m.retryAt) {
		m.retrying = true
		m.loop.Go(m.unprepareOrphaned)
	}
	stale := m.expireHealthLocked(due.Due)
	m.mu.Unlock()
	m.wakePods(stale)
	return due.Next
}
