package eviction

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/eviction/threshold"
	"podd/internal/pod"
	"podd/internal/wake"
)

const (
	// period is the time between two looks, upstream's evictionMonitoringPeriod.
	period = 10 * time.Second
	// shortPeriod is the time until the next look after something was reclaimed (runtimes
	// free space after they have answered), and the shortest time between two looks.
	shortPeriod = time.Second
	// podCleanupTimeout bounds the wait for an evicted pod's end, upstream's podCleanupTimeout.
	podCleanupTimeout = 30 * time.Second
	// hardGrace is the grace period of a hard eviction, upstream's
	// immediateEvictionGracePeriodSeconds.
	hardGrace = time.Second
	// eventInterval is how often the same attempt is an event.
	eventInterval = time.Minute
	// emptyReclaimBackoff is the time until something is reclaimed again after there was nothing,
	// unless a pod was evicted meanwhile. A disk may stay full for long, and listing all images and
	// containers every ten seconds would find nothing either.
	emptyReclaimBackoff = 30 * time.Second
	// usageTimeout bounds the measurement of the pods, reclaimTimeout one call of
	// Reclaim.
	usageTimeout   = 30 * time.Second
	reclaimTimeout = 4 * time.Minute
)

// Node measures the node and gives back what nobody needs.
type Node interface {
	// Observe measures some signals. It leaves out those that it cannot measure, and logs
	// them.
	Observe(ctx context.Context, signals []threshold.Signal) Observations
	// HasDedicatedImageFS says whether the runtime has a file system of its own.
	HasDedicatedImageFS(ctx context.Context) bool
	// Reclaim removes the containers of ended pods, and unused images. freed says that it
	// removed any; the space may be free a moment later. It may block for minutes.
	Reclaim(ctx context.Context) (freed bool, err error)
}

// Pods are those that run on the node.
type Pods interface {
	// Active returns the pods that have not ended; the slice is the caller's.
	Active() []*v1.Pod
	// Usage measures how much of a resource the pods use; it blocks until that is
	// measured, or ctx ends.
	Usage(ctx context.Context, pods []*v1.Pod, of v1.ResourceName) Usage
	// Evict ends a pod; false if it has ended, or may not be evicted. It does not block.
	Evict(uid pod.UID, e pod.Eviction) bool
	// AwaitReleased blocks until a pod no longer uses anything on the node, or ctx ends.
	AwaitReleased(ctx context.Context, uid pod.UID)
}

// Recorder records events of the node.
type Recorder interface {
	NodeEvent(eventType, reason, message string)
}

// Alarm tells earlier than the next look that memory is short.
type Alarm interface {
	// Arm makes C receive when less than this many bytes of memory are left: of the
	// machine's, or of what the pods together may have. It replaces the previous alarm.
	Arm(signal threshold.Signal, available int64) error
	C() <-chan struct{}
	Close()
}

// Config configures a Manager. Alarm, Changed, Log and Metrics may be nil.
type Config struct {
	// Thresholds are most urgent first.
	Thresholds []threshold.Threshold
	// PressureTransitionPeriod is how long a condition holds after it was last observed.
	PressureTransitionPeriod time.Duration
	// MaxPodGracePeriod bounds the grace period of pods that are evicted for a soft threshold;
	// negative for no bound.
	MaxPodGracePeriod time.Duration
	Node              Node
	Pods              Pods
	Recorder          Recorder
	Alarm             Alarm
	// Changed is called when the conditions have changed. It must not block.
	Changed func()
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Manager evicts pods under pressure. Create it with New and Run it once; the other methods
// may be called by anybody at any time.
type Manager struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics

	mu         sync.Mutex // guards what follows
	conditions []v1.NodeConditionType
	problems   []pod.Problem

	// The rest belongs to Run.
	state                *state
	lastEventAt          map[v1.ResourceName]time.Time // when the last event about it was recorded
	nothingReclaimedAt   time.Time                     // when there was nothing to reclaim; zero for never
	noEvictablePodLogged bool                          // the log says already that no pod can be evicted
	dedicatedImageFS     bool                          // the images have a file system of their own
}

// New returns a Manager; nothing is measured before Run.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	return &Manager{
		cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Metrics),
		state: newState(cfg.Thresholds, cfg.PressureTransitionPeriod), lastEventAt: map[v1.ResourceName]time.Time{},
	}
}

// Conditions returns the conditions of pressure that the node is under, in the order of the
// Node's status; none before the first look.
func (m *Manager) Conditions() []v1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conditions
}

// Problems says, for users, what is short.
func (m *Manager) Problems() []pod.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.problems)
}

// Run looks after the node until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	if len(m.cfg.Thresholds) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	var alarm <-chan struct{}
	if m.cfg.Alarm != nil {
		defer m.cfg.Alarm.Close()
		alarm = m.cfg.Alarm.C()
	}
	for {
		wait := m.synchronize(ctx)
		// An alarm that goes off all the time has the node looked at once a second.
		if !wake.Sleep(ctx, min(wait, shortPeriod)) || wait > shortPeriod && !wake.Until(ctx, alarm, time.Now().Add(wait-shortPeriod)) {
			return ctx.Err()
		}
	}
}

// synchronize measures, decides and acts once. It returns the time until the next look.
func (m *Manager) synchronize(ctx context.Context) time.Duration {
	seen := m.cfg.Node.Observe(ctx, m.state.signals())
	if ctx.Err() != nil {
		return period
	}
	now := time.Now()
	d := m.state.decide(seen, now)
	m.updateConditions(d, seen, now)
	m.armAlarm(seen)
	if len(d.actOn) == 0 {
		m.noEvictablePodLogged = false
		return period
	}
	relieved := false // the disks
	for _, t := range d.actOn {
		if isDisk(t.Signal) && relieved {
			continue
		}
		m.recordThresholdMet(t, now)
		if isDisk(t.Signal) {
			m.dedicatedImageFS = m.cfg.Node.HasDedicatedImageFS(ctx)
			freed := false
			freed, relieved = m.reclaim(ctx, t)
			switch {
			case relieved:
				m.log.Info("node pressure was relieved without evicting pods", "resource", t.Signal.Resource())
				continue
			case freed:
				return shortPeriod
			}
		}
		if m.evict(ctx, t, seen) {
			return 0
		}
		// No pod can be evicted. Upstream stops here; podd still removes what nobody
		// needs on a disk while the machine is short of memory.
	}
	return period
}

func isDisk(s threshold.Signal) bool { return s.Condition() == v1.NodeDiskPressure }

// armAlarm makes the kernel report a shortage of memory before the next look.
func (m *Manager) armAlarm(seen Observations) {
	if m.cfg.Alarm == nil {
		return
	}
	for i := range m.state.thresholds {
		t := &m.state.thresholds[i]
		o, known := seen[t.Signal]
		if _, met := m.state.metSince[i]; met || !known || t.Signal.Resource() != v1.ResourceMemory {
			continue
		}
		limit := t.Value.QuantityOf(o.Capacity)
		if err := m.cfg.Alarm.Arm(t.Signal, limit.Value()); err != nil {
			m.log.Debug("the kernel does not tell when memory runs short: it is looked at every 10s", "signal", t.Signal, "error", err)
		}
	}
}

// updateConditions publishes the conditions.
func (m *Manager) updateConditions(d decision, seen Observations, now time.Time) {
	m.mu.Lock()
	before := m.conditions
	m.conditions = d.conditions
	m.problems = m.state.problems(m.problems, d, seen, now)
	m.mu.Unlock()
	m.metrics.setConditions(d.conditions)
	if slices.Equal(before, d.conditions) {
		return
	}
	for _, c := range conditionTypes {
		is, was := slices.Contains(d.conditions, c), slices.Contains(before, c)
		switch {
		case is && !was:
			m.log.Warn("node is under pressure", "condition", c, "why", strings.Join(metReasons(d.met, seen, c), "; "))
		case was && !is:
			m.log.Info("node is no longer under pressure", "condition", c)
		}
	}
	m.cfg.Changed()
}

// recordThresholdMet records that something is attempted, at most once a minute.
func (m *Manager) recordThresholdMet(t *threshold.Threshold, now time.Time) {
	short := t.Signal.Resource()
	if last, ok := m.lastEventAt[short]; ok && now.Sub(last) < eventInterval {
		return
	}
	m.lastEventAt[short] = now
	m.cfg.Recorder.NodeEvent(v1.EventTypeWarning, "EvictionThresholdMet", fmt.Sprintf("Attempting to reclaim %s", short))
}

// reclaim gives back what nobody needs on the disk that is full.
func (m *Manager) reclaim(ctx context.Context, t *threshold.Threshold) (freed, relieved bool) {
	if m.dedicatedImageFS && (t.Signal == threshold.NodeFSAvailable || t.Signal == threshold.NodeFSInodesFree) {
		return false, false // neither images nor layers are there
	}
	if !m.nothingReclaimedAt.IsZero() && time.Since(m.nothingReclaimedAt) < emptyReclaimBackoff {
		return false, false
	}
	bounded, cancel := context.WithTimeout(ctx, reclaimTimeout)
	defer cancel()
	freed, err := m.cfg.Node.Reclaim(bounded)
	if !freed {
		m.nothingReclaimedAt = time.Now()
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("cannot remove everything that nobody needs from a full disk", "error", err)
	}
	return freed, m.state.relieved(m.cfg.Node.Observe(ctx, m.state.signals()))
}

// evict evicts one pod, and waits for its end; false if it may evict none.
func (m *Manager) evict(ctx context.Context, t *threshold.Threshold, seen Observations) bool {
	pods := slices.DeleteFunc(m.cfg.Pods.Active(), pod.IsCritical)
	if len(pods) == 0 {
		m.logNoEvictablePod(t)
		return false
	}
	bounded, cancel := context.WithTimeout(ctx, usageTimeout)
	used := m.cfg.Pods.Usage(bounded, pods, t.Signal.Resource())
	cancel()
	if ctx.Err() != nil {
		return false
	}
	rank(pods, t.Signal, m.dedicatedImageFS, used)
	m.metrics.age.WithLabelValues(string(t.Signal)).Observe(time.Since(seen[t.Signal].Time).Seconds())
	for _, p := range pods {
		why := evictionMessage(p, used[p.UID], t, seen[t.Signal])
		grace := m.gracePeriod(t, p)
		evicted := m.cfg.Pods.Evict(p.UID, pod.Eviction{
			Signal: string(t.Signal), Message: why, Grace: &grace,
			Condition: &v1.PodCondition{
				Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: why, ObservedGeneration: p.Generation,
			},
		})
		if !evicted {
			continue
		}
		m.noEvictablePodLogged, m.nothingReclaimedAt = false, time.Time{} // its containers can be reclaimed
		m.log.Warn("pod evicted", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "signal", t.Signal, "message", why)
		bounded, cancel := context.WithTimeout(ctx, podCleanupTimeout)
		m.cfg.Pods.AwaitReleased(bounded, p.UID)
		if bounded.Err() != nil && ctx.Err() == nil {
			m.log.Warn("evicted pod has not ended yet: looking at the node again", "pod", p.Namespace+"/"+p.Name, "uid", p.UID)
		}
		cancel()
		return true
	}
	m.logNoEvictablePod(t)
	return false
}

// logNoEvictablePod logs once that no pod can be evicted.
func (m *Manager) logNoEvictablePod(t *threshold.Threshold) {
	if !m.noEvictablePodLogged {
		m.noEvictablePodLogged = true
		m.log.Warn("node is under pressure, and no pod may be evicted: those that run are the node's own, or of a system priority", "signal", t.Signal)
	}
}

// gracePeriod is the grace period of a pod that is evicted.
func (m *Manager) gracePeriod(t *threshold.Threshold, p *v1.Pod) time.Duration {
	if t.Hard() {
		return hardGrace
	}
	own := v1.DefaultTerminationGracePeriodSeconds * time.Second
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		own = pod.GracePeriod(*s)
	}
	if s := p.DeletionGracePeriodSeconds; s != nil {
		own = min(own, pod.GracePeriod(*s))
	}
	if m.cfg.MaxPodGracePeriod < 0 {
		return own
	}
	return min(own, m.cfg.MaxPodGracePeriod)
}
