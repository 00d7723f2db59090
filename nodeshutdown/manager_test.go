package nodeshutdown

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podd/internal/pod"
	"podd/internal/wake"
)

// fakeAgent has pods that end a while after they were asked to, or never.
type fakeAgent struct {
	changes wake.Broadcaster
	began   time.Time

	mu    sync.Mutex
	pods  []*v1.Pod
	takes map[types.UID]time.Duration
	asked map[types.UID]bool
	said  []string // what happened, with its second
	held  bool
	found bool // all pods are known
}

func newAgent(pods ...*v1.Pod) *fakeAgent {
	return &fakeAgent{pods: pods, takes: map[types.UID]time.Duration{}, asked: map[types.UID]bool{}, found: true, began: time.Now()}
}

func (a *fakeAgent) say(format string, args ...any) {
	a.said = append(a.said, fmt.Sprintf("%.0f ", time.Since(a.began).Seconds())+fmt.Sprintf(format, args...))
}

func (a *fakeAgent) HoldStarts(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = true
	context.AfterFunc(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.held = false
	})
}

func (a *fakeAgent) holds() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

func (a *fakeAgent) Surveyed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.found
}

func (a *fakeAgent) Allocated() []*v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.pods)
}

func (a *fakeAgent) ShutDown(uid types.UID, within time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.held {
		a.say("%s may start again", uid)
	}
	a.say("%s within %s", uid, within)
	takes, ends := a.takes[uid]
	if a.asked[uid] || ends && takes < 0 {
		return
	}
	a.asked[uid] = true
	time.AfterFunc(takes, func() {
		a.mu.Lock()
		a.say("%s gone", uid)
		a.pods = slices.DeleteFunc(a.pods, func(p *v1.Pod) bool { return p.UID == uid })
		a.mu.Unlock()
		a.changes.Notify()
	})
}

func (a *fakeAgent) Released(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !slices.ContainsFunc(a.pods, func(p *v1.Pod) bool { return p.UID == uid })
}

func (a *fakeAgent) ReleasedChanges() (<-chan struct{}, func()) { return a.changes.Subscribe() }

func (a *fakeAgent) happened() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.said)
}

// aPod has a priority, and a grace period in seconds.
func aPod(name string, priority int32, grace int64) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace}}
}

// world is a Manager and what is around it.
type world struct {
	*Manager
	agent    *fakeAgent
	stopping bool
	err      error
	extended int
	changed  int
	events   []string
	log      strings.Builder
	metrics  *prometheus.Registry
}

func newWorld(t *testing.T, a *fakeAgent, periods []Period) *world {
	w := &world{agent: a, stopping: true, metrics: prometheus.NewRegistry()}
	w.Manager = New(Config{
		Agent: a, Periods: periods, Default: true,
		IsStopping:    func(context.Context) (bool, error) { return w.stopping, w.err },
		ExtendTimeout: func(time.Duration) { w.extended++ },
		StatusChanged: func() { w.changed++ },
		RecordEvent:   func(_, reason, message string) { w.events = append(w.events, reason+": "+message) },
		StateFile:     filepath.Join(t.TempDir(), "state"),
		Log:           slog.New(slog.NewTextHandler(&w.log, nil)), Metrics: w.metrics,
	})
	return w
}

func TestPodsEndInTheOrderOfTheirPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(aPod("critical", pod.SystemCriticalPriority+1000, 30), aPod("slow", 0, 60), aPod("quick", 10, 30), aPod("low", -5, 30))
		a.takes = map[types.UID]time.Duration{"slow": 20 * time.Second, "quick": time.Second, "low": 2 * time.Second, "critical": 3 * time.Second}
		w := newWorld(t, a, nil)
		begun := time.Now()
		w.OnStop(t.Context())
		want := []string{"0 slow within 1m0s", "0 quick within 1m0s", "0 low within 1m0s", "1 quick gone", "2 low gone", "20 slow gone", "20 critical within 30s", "23 critical gone"}
		if got := a.happened(); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if took := time.Since(begun); took != 23*time.Second {
			t.Errorf("took %s: a shutdown ends with its last pod", took)
		}
		if w.extended < 4 || w.changed == 0 || w.ShuttingDown() == nil {
			t.Errorf("extended %d times, the status changed %d times, the node %v", w.extended, w.changed, w.ShuttingDown())
		}
		if !strings.Contains(w.log.String(), "all pods have ended") {
			t.Errorf("the log has\n%s", &w.log)
		}
	})
}

func TestAPodThatDoesNotEndHoldsUpNoShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(aPod("stuck", 0, 600), aPod("critical", pod.SystemCriticalPriority, 30))
		a.takes["stuck"] = -1
		w := newWorld(t, a, []Period{{pod.SystemCriticalPriority, 10 * time.Second}, {0, 20 * time.Second}})
		begun := time.Now()
		w.OnStop(t.Context())
		if got, want := a.happened(), []string{"0 stuck within 20s", "25 critical within 10s", "25 critical gone"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if took := time.Since(begun); took != 25*time.Second {
			t.Errorf("took %s", took)
		}
		if !strings.Contains(w.log.String(), "pods have not ended in time\" pods=default/stuck") {
			t.Errorf("the log has\n%s", &w.log)
		}
	})
}

// A stop of podd alone ends no pod. Nor does a stop if systemd does not answer.
func TestAStopOfPoddAloneEndsNoPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name      string
			stopping  bool
			err       error
			byDefault bool
		}{{"podd alone", false, nil, true}, {"unknown", false, context.DeadlineExceeded, true}, {"not asked for", true, nil, false}} {
			a := newAgent(aPod("web", 0, 30))
			w := newWorld(t, a, nil)
			w.stopping, w.err, w.config.Default = c.stopping, c.err, c.byDefault
			w.OnStop(t.Context())
			if got := a.happened(); len(got) > 0 || w.ShuttingDown() != nil || w.extended > 0 {
				t.Errorf("%s: got %q, %v", c.name, got, w.ShuttingDown())
			}
		}
	})
}

// A podd that has only just started waits until it knows what runs; one that cannot know that does
// not wait for long.
func TestAShutdownWaitsUntilPodsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		a.found = false
		w := newWorld(t, a, []Period{{0, time.Minute}})
		time.AfterFunc(5*time.Second, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.found, a.pods = true, []*v1.Pod{aPod("web", 0, 30)}
		})
		w.OnStop(t.Context())
		if got, want := a.happened(), []string{"5 web within 1m0s", "5 web gone"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		b := newAgent()
		b.found = false
		begun := time.Now()
		newWorld(t, b, nil).OnStop(t.Context())
		if took := time.Since(begun); took != surveyTime {
			t.Errorf("without an answer it took %s", took)
		}
	})
}

func TestAShutdownThatIsCalledOffLetsPodsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(aPod("web", 0, 30), aPod("critical", pod.SystemCriticalPriority, 30))
		a.takes["web"] = 20 * time.Second
		w := newWorld(t, a, []Period{{0, 30 * time.Second}, {pod.SystemCriticalPriority, 10 * time.Second}})
		done := w.begin().done
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !a.holds() || w.ShuttingDown() == nil {
			t.Fatal("pods may start during a shutdown")
		}
		w.callOff()
		<-done
		synctest.Wait()
		if got, want := a.happened(), []string{"0 web within 30s"}; !slices.Equal(got, want) || a.holds() || w.ShuttingDown() != nil || w.changed != 2 {
			t.Errorf("got %q, want %q; held %t, the node %v, %d changes", got, want, a.holds(), w.ShuttingDown(), w.changed)
		}
		w.callOff() // without a shutdown
		time.Sleep(time.Minute)
		w.OnStop(t.Context()) // another one, to its end
		if got := a.happened(); got[len(got)-1] != "65 critical gone" {
			t.Errorf("got %q", got)
		}
	})
}

// Once systemd has begun to stop everything, a signal of logind changes nothing.
func TestAStopWithTheMachineIsNotCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(aPod("web", 0, 60))
		a.takes["web"] = 50 * time.Second
		w := newWorld(t, a, []Period{{0, time.Minute}})
		w.begin()
		time.AfterFunc(10*time.Second, w.callOff)
		begun := time.Now()
		w.OnStop(t.Context())
		if took := time.Since(begun); took != 50*time.Second || !a.holds() {
			t.Errorf("took %s, starts are held: %t", took, a.holds())
		}
	})
}

// A podd that fails does not wait for pods that nobody ends any more.
func TestAStopEndsWithPodd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(aPod("web", 0, 60))
		a.takes["web"] = -1
		w := newWorld(t, a, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		w.OnStop(ctx)
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("took %s", took)
		}
		w.mu.Lock()
		w.final = false
		w.mu.Unlock()
		w.callOff() // the test ends
	})
}

// systemd stops podd while it ends pods because of logind: that is one shutdown.
func TestAStopDuringAShutdownWaitsForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(aPod("web", 0, 60))
		a.takes["web"] = 50 * time.Second
		w := newWorld(t, a, []Period{{0, time.Minute}})
		w.begin()
		time.Sleep(30 * time.Second)
		begun := time.Now()
		w.OnStop(t.Context())
		if took := time.Since(begun); took != 20*time.Second || len(a.happened()) != 2 {
			t.Errorf("took %s, %q", took, a.happened())
		}
	})
}

func TestTheTimesOfTheLastShutdownAreMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(aPod("web", 0, 60))
		a.takes["web"] = 50 * time.Second
		w := newWorld(t, a, nil)
		start := time.Now().Unix()
		w.OnStop(t.Context())
		reg := prometheus.NewRegistry()
		New(Config{StateFile: w.config.StateFile, Log: slog.New(slog.DiscardHandler), Metrics: reg})
		for _, of := range []prometheus.Gatherer{w.metrics, reg} {
			if err := testutil.GatherAndCompare(of, strings.NewReader(fmt.Sprintf(`# HELP kubelet_graceful_shutdown_end_time_seconds When the last graceful shutdown of the node ended, in seconds since 1970.
# TYPE kubelet_graceful_shutdown_end_time_seconds gauge
kubelet_graceful_shutdown_end_time_seconds %d
# HELP kubelet_graceful_shutdown_start_time_seconds When the last graceful shutdown of the node began, in seconds since 1970.
# TYPE kubelet_graceful_shutdown_start_time_seconds gauge
kubelet_graceful_shutdown_start_time_seconds %d
`, start+50, start))); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestDefaultPeriods(t *testing.T) {
	const s, m = time.Second, time.Minute
	for _, c := range []struct {
		longest, critical int64
		want              [2]time.Duration
	}{
		{30, 0, [2]time.Duration{30 * s, 0}},
		{30, 10, [2]time.Duration{30 * s, 10 * s}},
		{600, 0, [2]time.Duration{5 * m, 0}},
		{600, 30, [2]time.Duration{270 * s, 30 * s}},
		{600, 600, [2]time.Duration{150 * s, 150 * s}},
		{60, 600, [2]time.Duration{60 * s, 240 * s}},
		{10, 200, [2]time.Duration{10 * s, 200 * s}},
	} {
		pods := []*v1.Pod{aPod("a", 0, 1), aPod("b", 5, c.longest)}
		if c.critical > 0 {
			pods = append(pods, aPod("c", pod.SystemCriticalPriority, c.critical))
		}
		if got := DefaultPeriods(pods); got[0].Length != c.want[0] || got[1].Length != c.want[1] || total(got) > maxDefault {
			t.Errorf("%d s and %d s: got %v, want %v", c.longest, c.critical, got, c.want)
		}
	}
	if got := DefaultPeriods(nil); total(got) != 0 {
		t.Errorf("without pods: got %v", got)
	}
}
