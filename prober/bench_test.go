package prober

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// bench is a prober in a bubble, with a handler that the test answers for.
type bench struct {
	*testing.T
	*Prober
	own, rows *prometheus.Registry
	// answer is asked with the probe's kind and container ID.
	answer func(ctx context.Context, j job) attemptResult
	begun  time.Time
	stop   func()

	mu     sync.Mutex
	runs   map[string][]time.Duration // by "kind id", since the bench began
	events []string
	wakes  int
}

func (b *bench) Wake(pod.UID) { b.mu.Lock(); b.wakes++; b.mu.Unlock() }

func (b *bench) ContainerEvent(_ *v1.Pod, container, eventType, reason, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, fmt.Sprintf("%v %s %s %s: %s", time.Since(b.begun), container, eventType, reason, message))
}

// inBubble runs a test with a prober whose probes all fail, until the test says
// otherwise.
func inBubble(t *testing.T, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "")
		test(b)
		b.stop()
	})
}

func newBench(t *testing.T, dir string) *bench {
	b := &bench{T: t, own: prometheus.NewRegistry(), rows: prometheus.NewRegistry(), begun: time.Now(), runs: map[string][]time.Duration{}}
	b.fail("no")
	b.Prober = New(Config{Waker: b, Events: b, StateDir: dir, Metrics: b.own, PerProbe: b.rows})
	b.runHandler = func(ctx context.Context, j job) attemptResult {
		b.mu.Lock()
		key := j.kind.String() + " " + j.containerID
		b.runs[key] = append(b.runs[key], time.Since(b.begun))
		answer := b.answer
		b.mu.Unlock()
		return answer(ctx, j)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.Prober.Run(ctx) }()
	b.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(b.stop)
	return b
}

func (b *bench) by(f func(ctx context.Context, j job) attemptResult) {
	b.mu.Lock()
	b.answer = f
	b.mu.Unlock()
}

func (b *bench) succeed() {
	b.by(func(context.Context, job) attemptResult { return attemptResult{verdict: success} })
}

func (b *bench) fail(why string) {
	b.by(func(context.Context, job) attemptResult { return attemptResult{verdict: failure, message: why} })
}

// at waits until that long after the bench began, and for everything due then.
func (b *bench) at(d time.Duration) {
	time.Sleep(d - time.Since(b.begun))
	synctest.Wait()
}

// ran is when the probe of that kind and container ID ran.
func (b *bench) ran(key string) []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.runs[key])
}

func (b *bench) expectRuns(key string, want ...time.Duration) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := b.runs[key]; !slices.Equal(got, want) {
		b.Errorf("%s: got runs at %v, want %v", key, got, want)
	}
}

func (b *bench) expect(uid pod.UID, name string, want pod.Probes) {
	b.Helper()
	if got := b.Results(uid)[name]; got != want {
		b.Errorf("after %v: got results %+v, want %+v", time.Since(b.begun), got, want)
	}
}

func (b *bench) expectWakes(want int) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wakes != want {
		b.Errorf("got %d wakes, want one for each change: %d", b.wakes, want)
	}
}

func (b *bench) expectEvents(want ...string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.events, want) {
		b.Errorf("got events\n\t%s\nwant\n\t%s", strings.Join(b.events, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// every is a probe with that period; the rest are the API's defaults.
func every(period int32) *v1.Probe {
	return &v1.Probe{PeriodSeconds: period, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
		ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}}
}

func with(p *v1.Probe, change func(*v1.Probe)) *v1.Probe { change(p); return p }

// aPod has one container, web, with these probes; nil for none.
func aPod(uid pod.UID, startup, ready, live *v1.Probe) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = string(uid), "default", uid
	p.Spec.Containers = []v1.Container{{Name: "web", StartupProbe: startup, ReadinessProbe: ready, LivenessProbe: live}}
	return p
}

// runs says that the pod's container runs since now, with this ID.
func (b *bench) sync(p *v1.Pod, id string) {
	b.Sync(p, "10.0.0.1", []pod.ProbeTarget{{Container: &p.Spec.Containers[0], ContainerID: id, StartedAt: time.Now()}}, false)
	synctest.Wait()
}

const (
	ok     = pod.ProbeSucceeded
	bad    = pod.ProbeFailed
	none   = pod.ProbeUnknown
	sec    = time.Second
	millis = time.Millisecond
)
