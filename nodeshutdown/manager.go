package nodeshutdown

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podd/internal/checkpoint"
	"podd/internal/logonce"
	"podd/internal/wake"
)

// Agent runs the pods. None of its methods blocks for long.
type Agent interface {
	// HoldStarts keeps pods from being started until ctx ends.
	HoldStarts(ctx context.Context)
	// Surveyed says that podd has looked at all pods that existed when it started.
	Surveyed() bool
	// Allocated returns the pods that have not ended, or have something left to be ended.
	Allocated() []*v1.Pod
	// ShutDown ends a pod, within its own grace period if that is shorter. It leaves one alone that
	// has completed.
	ShutDown(uid types.UID, within time.Duration)
	// Released says that a pod has ended, and has released its network and its volumes.
	Released(uid types.UID) bool
	// ReleasedChanges returns a channel that receives when Released may have changed.
	ReleasedChanges() (changes <-chan struct{}, stop func())
}

// Config is what a Manager is made of.
type Config struct {
	Agent Agent
	// Periods are those of the configuration. Without any, nothing is asked of logind.
	Periods []Period
	// Default says that without Periods pods have their own grace periods (DefaultPeriods) when
	// podd is stopped with the machine. Otherwise nothing is done for them then.
	Default bool
	// IsStopping says that the machine is going down. It may block for some seconds.
	IsStopping func(ctx context.Context) (bool, error)
	// ExtendTimeout tells the service manager that podd takes that much longer to stop.
	ExtendTimeout func(time.Duration)
	// StatusChanged is called when the answer of ShuttingDown changes. It must not block.
	StatusChanged func()
	// RecordEvent records an event of the node.
	RecordEvent func(eventType, reason, message string)
	// StateFile has the times of the last shutdown, in the kubelet's format.
	StateFile string
	Log       *slog.Logger
	Metrics   prometheus.Registerer
}

// Manager ends pods when the machine goes down.
type Manager struct {
	config  Config
	log     *slog.Logger
	state   checkpoint.File[state]
	metrics metrics

	// overrideDir is where logind's configuration is overridden; delayFailure is why that did not
	// help.
	overrideDir  string
	delayFailure logonce.Failure

	mu      sync.Mutex
	current *shutdown // nil for none
	final   bool      // systemd is stopping podd with the machine: nothing calls that off
}

// shutdown is in progress, or has ended all pods while the machine is still up.
type shutdown struct {
	done   chan struct{} // closed when all pods have ended, or have had their time
	cancel context.CancelFunc
}

const (
	// surveyTime is how long a shutdown waits for a podd that has just started to find its pods.
	surveyTime = 10 * time.Second
	// settleTime is how much longer than its period a pod may take: its processes were killed at
	// the end of that, and have to go.
	settleTime = 5 * time.Second
	// isStoppingTime bounds the question whether the machine is going down.
	isStoppingTime = 5 * time.Second
	// extension is by how much the time to stop is extended, every extensionPeriod.
	extension, extensionPeriod = 30 * time.Second, 5 * time.Second
)

// New returns a Manager.
func New(c Config) *Manager {
	c.Periods = sorted(c.Periods)
	m := &Manager{config: c, log: c.Log, metrics: newMetrics(c.Metrics), overrideDir: logindConfDir}
	m.state = checkpoint.File[state]{Path: c.StateFile, Format: checkpoint.Format{MaxBytes: 4 << 10}}
	last, err := m.state.Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log.Info("cannot read when the machine last shut down: its metrics are missing", "file", c.StateFile, "error", err)
	}
	m.metrics.set(last)
	return m
}

// ShuttingDown returns the reason why the node is not ready, in the kubelet's words; nil while
// there is no shutdown.
func (m *Manager) ShuttingDown() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return nil
	}
	return errors.New("node is shutting down")
}

// OnStop is to be called when podd is told to stop, before it does. If the machine is going down,
// it ends the pods, and blocks until that is done, or ctx ends. Otherwise it returns soon.
func (m *Manager) OnStop(ctx context.Context) {
	if len(m.config.Periods) == 0 && !m.config.Default {
		return
	}
	asking, cancel := context.WithTimeout(ctx, isStoppingTime)
	defer cancel()
	stopping, err := m.config.IsStopping(asking)
	if err != nil {
		m.log.Debug("cannot ask whether the machine is going down: assuming that only podd is stopped", "error", err)
	}
	if !stopping {
		return
	}
	m.mu.Lock()
	m.final = true
	m.mu.Unlock()
	s := m.begin()
	for {
		m.config.ExtendTimeout(extension)
		select {
		case <-s.done:
			return
		case <-ctx.Done():
			return
		case <-time.After(extensionPeriod):
		}
	}
}

// begin begins a shutdown, or joins the one that is in progress.
func (m *Manager) begin() *shutdown {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != nil {
		return m.current
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &shutdown{done: make(chan struct{}), cancel: cancel}
	m.current = s
	m.config.Agent.HoldStarts(ctx)
	go func() {
		defer close(s.done)
		m.config.StatusChanged()
		m.endPods(ctx)
	}()
	return s
}

// callOff ends a shutdown: pods start again. Once systemd is stopping podd, that cannot be.
func (m *Manager) callOff() {
	m.mu.Lock()
	s := m.current
	if s == nil || m.final {
		m.mu.Unlock()
		return
	}
	m.current = nil
	m.mu.Unlock()
	m.log.Info("the shutdown of the machine was called off: pods start again")
	s.cancel()
	<-s.done
	m.config.StatusChanged()
}

// endPods ends all pods, one range of priorities after the other.
func (m *Manager) endPods(ctx context.Context) {
	times := state{StartTime: time.Now()}
	m.saveState(times)
	m.awaitSurvey(ctx)
	periods := m.config.Periods
	if len(periods) == 0 {
		periods = DefaultPeriods(m.config.Agent.Allocated())
	}
	m.log.Info("the machine is shutting down: ending all pods", "pods", len(m.config.Agent.Allocated()), "within", total(periods))
	for i, period := range periods {
		m.endRange(ctx, periods, i, period.Length)
	}
	if ctx.Err() != nil {
		return
	}
	if left := m.config.Agent.Allocated(); len(left) > 0 {
		m.log.Warn("the shutdown goes on, though pods have not ended in time", "pods", names(left))
	} else {
		m.log.Info("all pods have ended")
	}
	times.EndTime = time.Now()
	m.saveState(times)
}

// awaitSurvey waits until all pods are known.
func (m *Manager) awaitSurvey(ctx context.Context) {
	deadline := time.Now().Add(surveyTime)
	for !m.config.Agent.Surveyed() && time.Now().Before(deadline) && wake.Sleep(ctx, 100*time.Millisecond) {
	}
}

// endRange ends the pods of a range, and waits until they have ended, or their time is over.
func (m *Manager) endRange(ctx context.Context, periods []Period, index int, length time.Duration) {
	changes, stop := m.config.Agent.ReleasedChanges()
	defer stop()
	asked := map[types.UID]bool{}
	deadline := time.Now().Add(length + settleTime)
	for ctx.Err() == nil {
		for _, p := range podsOf(periods, index, m.config.Agent.Allocated()) {
			if !asked[p.UID] {
				asked[p.UID] = true
				m.config.Agent.ShutDown(p.UID, length)
			}
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(asked)), func(uid types.UID) bool { return !m.config.Agent.Released(uid) }) {
			return
		}
		if !time.Now().Before(deadline) {
			return
		}
		wake.Until(ctx, changes, deadline)
	}
}

// maxNamed is how many pods a line of the log names.
const maxNamed = 20

func names(pods []*v1.Pod) string {
	var all []string
	for _, p := range pods[:min(len(pods), maxNamed)] {
		all = append(all, p.Namespace+"/"+p.Name)
	}
	if more := len(pods) - maxNamed; more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

func (m *Manager) saveState(s state) {
	m.metrics.set(s)
	if err := m.state.Write(s); err != nil {
		m.log.Debug("cannot save when the machine shut down", "error", err)
	}
}
