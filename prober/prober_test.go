package prober

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	answer func(ctx context.Context, j job) answer
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
	b.ask = func(ctx context.Context, j job) answer {
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

func (b *bench) by(f func(ctx context.Context, j job) answer) {
	b.mu.Lock()
	b.answer = f
	b.mu.Unlock()
}

func (b *bench) succeed() {
	b.by(func(context.Context, job) answer { return answer{verdict: success} })
}

func (b *bench) fail(why string) {
	b.by(func(context.Context, job) answer { return answer{verdict: failure, message: why} })
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

func TestAReadinessProbeRunsAtOnceAndThenEachPeriod(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.succeed()
		b.sync(aPod("a", nil, every(10), nil), "a1")
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: ok})
		b.at(35 * sec)
		b.expectRuns("Readiness a1", 0, 10*sec, 20*sec, 30*sec)
		b.expectWakes(1)
		b.expectEvents()
	})
}

// TestAContainerThatComesUpWithinASecondIsReadyByThen, without an event: its
// first answer was asked for before it could listen.
func TestAContainerThatComesUpWithinASecondIsReadyByThen(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sync(aPod("a", nil, every(10), nil), "a1")
		b.at(500 * millis)
		b.expect("a", "web", pod.Probes{ContainerID: "a1"})
		b.succeed()
		b.at(sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: ok})
		b.expectEvents()
		b.at(25 * sec)
		b.expectRuns("Readiness a1", 0, sec, 10*sec, 20*sec)
	})
}

func TestInitialDelayCountsFromTheContainersStart(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.at(100 * sec)
		delayed := func(p *v1.Probe) { p.InitialDelaySeconds = 20 }
		p := aPod("a", nil, with(every(10), delayed), with(every(10), delayed))
		started := time.Now().Add(-5 * sec)
		b.Sync(p, "10.0.0.1", []pod.ProbeTarget{{Container: &p.Spec.Containers[0], ContainerID: "a1", StartedAt: started}}, false)
		b.at(136 * sec)
		b.expectRuns("Readiness a1", 115*sec, 125*sec, 135*sec)
		b.expectRuns("Liveness a1", 115*sec, 125*sec, 135*sec)
	})
}

// TestALivenessProbeKillsNoSoonerThanUpstream: the first run comes after one
// period, and failureThreshold failures in a row make the result.
func TestALivenessProbeKillsNoSoonerThanUpstream(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sync(aPod("a", nil, nil, every(10)), "a1")
		b.at(29 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1"})
		b.at(30 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Live: bad})
		// It rests until the container has a new ID.
		b.at(100 * sec)
		b.expectRuns("Liveness a1", 10*sec, 20*sec, 30*sec)
		b.expectEvents(
			"10s web Warning Unhealthy: Liveness probe failed: no",
			"20s web Warning Unhealthy: Liveness probe failed: no",
			"30s web Warning Unhealthy: Liveness probe failed: no")
		// Its successor begins from nothing.
		p := aPod("a", nil, nil, every(10))
		b.sync(p, "a2")
		b.expect("a", "web", pod.Probes{ContainerID: "a2"})
		b.at(125 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a2"})
		b.at(130 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a2", Live: bad})
		b.expectWakes(2)
	})
}

func TestOneSuccessBetweenFailuresStartsTheCountAnew(t *testing.T) {
	inBubble(t, func(b *bench) {
		n := 0
		b.by(func(context.Context, job) answer {
			if n++; n == 3 {
				return answer{verdict: success}
			}
			return answer{verdict: failure}
		})
		b.sync(aPod("a", nil, nil, every(1)), "a1")
		b.at(5 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Live: ok})
		b.at(6 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Live: bad})
	})
}

func TestThresholdsOfReadiness(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.succeed()
		p := aPod("a", nil, with(every(5), func(p *v1.Probe) { p.SuccessThreshold, p.FailureThreshold = 3, 2 }), nil)
		b.sync(p, "a1")
		b.at(9 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1"})
		b.at(10 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: ok})
		b.fail("down")
		b.at(15 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: ok})
		b.at(20 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: bad})
		b.succeed()
		b.at(34 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: bad})
		b.at(35 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: ok})
	})
}

func TestAStartupProbeHoldsTheOthersBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sync(aPod("a", every(5), every(5), every(5)), "a1")
		b.at(13 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1"})
		b.expectRuns("Readiness a1")
		b.succeed()
		b.at(15 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Startup: ok, Ready: ok})
		b.at(31 * sec)
		b.expectRuns("Startup a1", 0, sec, 5*sec, 10*sec, 15*sec) // and no more
		b.expectRuns("Readiness a1", 15*sec, 20*sec, 25*sec, 30*sec)
		b.expectRuns("Liveness a1", 20*sec, 25*sec, 30*sec)
	})
}

// TestAStartupProbeGivesTheTimeThatItsFieldsPromise: failureThreshold ×
// periodSeconds.
func TestAStartupProbeGivesTheTimeThatItsFieldsPromise(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sync(aPod("a", with(every(10), func(p *v1.Probe) { p.FailureThreshold = 30 }), every(1), every(1)), "a1")
		b.at(299 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1"})
		b.at(300 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Startup: bad})
		runs := len(b.ran("Startup a1"))
		b.at(400 * sec)
		if got := len(b.ran("Startup a1")); got != runs || len(b.ran("Liveness a1")) > 0 {
			t.Errorf("got %d more runs after the failure, and %v of liveness", got-runs, b.ran("Liveness a1"))
		}
	})
}

// TestProbesBelowASecondUntilTheFirstSuccess is kubernetes/kubernetes#76951.
func TestProbesBelowASecondUntilTheFirstSuccess(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := aPod("a", nil, every(10), nil)
		p.Annotations = map[string]string{pod.AnnotationProbeUntilSuccess: "100ms"}
		b.sync(p, "a1")
		b.at(3450 * millis)
		b.succeed()
		b.at(3500 * millis)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: ok})
		if got := len(b.ran("Readiness a1")); got != 36 {
			t.Errorf("got %d runs in 3.5 s, want 36", got)
		}
		// From then on by the period, also when it fails again.
		b.fail("down")
		b.at(49 * sec)
		b.expectRuns("Readiness a1", append(b.ran("Readiness a1")[:36], 10*sec, 20*sec, 30*sec, 40*sec)...)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: bad})
		// Thirty-five failures were one event, and each of the later ones is.
		b.expectEvents("1s web Warning Unhealthy: Readiness probe failed: no",
			"10s web Warning Unhealthy: Readiness probe failed: down", "20s web Warning Unhealthy: Readiness probe failed: down",
			"30s web Warning Unhealthy: Readiness probe failed: down", "40s web Warning Unhealthy: Readiness probe failed: down")
	})
}

// TestAFastStartupProbeHasAllItsTime: ten failures in the first second are not
// ten of failureThreshold.
func TestAFastStartupProbeHasAllItsTime(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := aPod("a", every(10), nil, nil)
		p.Annotations = map[string]string{pod.AnnotationProbeUntilSuccess: "100ms"}
		b.sync(p, "a1")
		b.at(29900 * millis)
		b.expect("a", "web", pod.Probes{ContainerID: "a1"})
		b.at(30 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Startup: bad})
		b.expectEvents("1s web Warning Unhealthy: Startup probe failed: no", "10s web Warning Unhealthy: Startup probe failed: no",
			"20s web Warning Unhealthy: Startup probe failed: no", "30s web Warning Unhealthy: Startup probe failed: no")
	})
}

// TestFastProbesEnd: what never comes up is not asked ten times a second for
// ever; and liveness is never.
func TestFastProbesEnd(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := aPod("a", nil, every(10), with(every(10), func(p *v1.Probe) { p.FailureThreshold = 1000 }))
		p.Annotations = map[string]string{pod.AnnotationProbeUntilSuccess: "1s"}
		b.sync(p, "a1")
		b.at(paceFor + 101*sec)
		if got := len(b.ran("Readiness a1")); got != 611 {
			t.Errorf("got %d runs of readiness, want one a second for 600 s and ten more", got)
		}
		if got := len(b.ran("Liveness a1")); got != 70 {
			t.Errorf("got %d runs of liveness, want 70", got)
		}
	})
}

func TestAProbeThatCannotBeRunIsTriedThreeTimesAndCountsNeitherWay(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.by(func(context.Context, job) answer { return answer{verdict: unknown, err: errors.New("no such command")} })
		b.sync(aPod("a", nil, nil, every(1)), "a1")
		b.at(10 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1"})
		if got := len(b.ran("Liveness a1")); got != 30 {
			t.Errorf("got %d attempts in ten runs, want 30", got)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if want := "1s web Warning Unhealthy: Liveness probe errored and resulted in unknown state: no such command"; b.events[0] != want || len(b.events) != 10 {
			t.Errorf("got %d events, the first %q, want 10 of %q", len(b.events), b.events[0], want)
		}
	})
}

// TestRetriesStayWithinTheTimeout: three tries that each take their whole
// timeout would be three timeouts.
func TestRetriesStayWithinTheTimeout(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.by(func(_ context.Context, j job) answer {
			time.Sleep(min(j.timeout, 700*millis))
			return answer{verdict: unknown, err: errors.New("broken")}
		})
		b.sync(aPod("a", nil, nil, every(10)), "a1")
		b.at(15 * sec)
		b.expectRuns("Liveness a1", 10*sec, 10700*millis)
	})
}

func TestAProbeThatHangsDelaysNoOther(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.by(func(ctx context.Context, j job) answer {
			if j.containerID == "hung" {
				select {
				case <-time.After(j.timeout):
					return answer{verdict: failure, message: "timeout"}
				case <-ctx.Done():
					return answer{verdict: unknown, err: ctx.Err()}
				}
			}
			return answer{verdict: success}
		})
		b.sync(aPod("h", nil, nil, with(every(1), func(p *v1.Probe) { p.TimeoutSeconds = 60 })), "hung")
		b.sync(aPod("a", nil, every(1), nil), "a1")
		b.at(200 * sec)
		if got := len(b.ran("Readiness a1")); got != 201 {
			t.Errorf("got %d runs of the other pod's probe, want 201", got)
		}
		b.expectRuns("Liveness hung", 1*sec, 61*sec, 121*sec)
		b.expect("h", "web", pod.Probes{ContainerID: "hung", Live: bad})
	})
}

func TestWhileAPodTerminatesOnlyReadinessGoesOn(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.succeed()
		p := aPod("a", every(2), every(2), every(2))
		b.sync(p, "a1")
		b.at(5 * sec)
		b.fail("going")
		b.Sync(p, "10.0.0.1", []pod.ProbeTarget{{Container: &p.Spec.Containers[0], ContainerID: "a1"}}, true)
		live := len(b.ran("Liveness a1"))
		b.at(30 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Startup: ok, Ready: bad, Live: ok})
		if got := len(b.ran("Liveness a1")); got != live {
			t.Errorf("liveness ran %d more times", got-live)
		}
	})
}

// TestTerminationBreaksOffALivenessRun: its failure is nobody's any more.
func TestTerminationBreaksOffALivenessRun(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.by(func(ctx context.Context, _ job) answer {
			<-ctx.Done()
			return answer{verdict: failure, message: "killed"}
		})
		p := aPod("a", nil, nil, with(every(1), func(p *v1.Probe) { p.FailureThreshold = 1 }))
		b.sync(p, "a1")
		b.at(1500 * millis)
		b.Sync(p, "10.0.0.1", []pod.ProbeTarget{{Container: &p.Spec.Containers[0], ContainerID: "a1"}}, true)
		b.at(10 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1"})
		b.expectEvents()
		b.expectRuns("Liveness a1", sec)
	})
}

// TestAFlappingProbeFillsNoLog: it wakes its pod each time and is told once a
// minute.
func TestAFlappingProbeFillsNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBench(t, "")
		b.log = slog.New(slog.NewTextHandler(&log, nil))
		n := 0
		b.by(func(context.Context, job) answer {
			if n++; n%2 == 0 {
				return answer{verdict: failure}
			}
			return answer{verdict: success}
		})
		b.sync(aPod("a", nil, with(every(1), func(p *v1.Probe) { p.FailureThreshold = 1 }), nil), "a1")
		b.at(3600 * sec)
		b.stop()
		b.expectWakes(3601)
		if got := strings.Count(log.String(), "probe flipped"); got != 1 {
			t.Errorf("got %d lines of an hour's flapping, want 1", got)
		}
	})
}

func TestAContainerThatIsGoneIsForgotten(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.succeed()
		p := aPod("a", nil, every(1), nil)
		b.sync(p, "a1")
		b.at(2 * sec)
		b.Sync(p, "10.0.0.1", nil, false)
		if got := b.Results("a"); got == nil || len(got) != 0 {
			t.Errorf("got %v, want no results, of a pod that has probes", got)
		}
		b.at(10 * sec)
		b.expectRuns("Readiness a1", 0, sec, 2*sec)
	})
}

func TestAPodWithoutProbesHasNoResults(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sync(aPod("a", nil, nil, nil), "a1")
		if got := b.Results("a"); got != nil {
			t.Errorf("got %v, want nil", got)
		}
	})
}

func TestSidecarsAreProbed(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.succeed()
		p := aPod("a", nil, nil, nil)
		always := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []v1.Container{{Name: "mesh", RestartPolicy: &always, StartupProbe: every(5), LivenessProbe: every(5)}}
		b.Sync(p, "10.0.0.1", []pod.ProbeTarget{{Container: &p.Spec.InitContainers[0], ContainerID: "m1", StartedAt: time.Now()}}, false)
		b.at(6 * sec)
		b.expect("a", "mesh", pod.Probes{ContainerID: "m1", Startup: ok, Live: ok})
	})
}

// TestAfterARestartOfPoddProbesAreSpreadOverTheirPeriod and do not fire in one
// burst.
func TestAfterARestartOfPoddProbesAreSpreadOverTheirPeriod(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.succeed()
		for i := range 100 {
			p := aPod(pod.UID(fmt.Sprint("p", i)), nil, nil, every(10))
			b.Sync(p, "10.0.0.1", []pod.ProbeTarget{{Container: &p.Spec.Containers[0], ContainerID: fmt.Sprint("c", i), StartedAt: b.begun.Add(-time.Hour)}}, false)
		}
		b.at(30*sec - millis)
		perSecond := map[time.Duration]int{}
		b.mu.Lock()
		defer b.mu.Unlock()
		for id, runs := range b.runs {
			if len(runs) != 3 || runs[1]-runs[0] > 10*sec+grid || runs[1]-runs[0] < 10*sec-grid {
				t.Fatalf("%s: got runs at %v, want three, a period apart", id, runs)
			}
			perSecond[runs[0].Truncate(sec)]++
		}
		for second := range 10 {
			if n := perSecond[time.Duration(second)*sec]; n < 8 || n > 12 {
				t.Errorf("got %d of 100 probes in second %d, want about 10", n, second)
			}
		}
	})
}

// TestReadinessSurvivesARestartOfPodd is kubernetes/kubernetes#100277: neither
// Ready nor unready flaps.
func TestReadinessSurvivesARestartOfPodd(t *testing.T) {
	dir := t.TempDir()
	ready, unready := aPod("ready", every(5), every(60), every(60)), aPod("unready", nil, every(60), nil)
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		began = time.Now()
		b := newBench(t, dir)
		b.by(func(_ context.Context, j job) answer {
			if j.containerID == "r1" {
				return answer{verdict: success}
			}
			return answer{verdict: failure}
		})
		b.sync(ready, "r1")
		b.sync(unready, "u1")
		b.at(200 * sec)
		b.expect("unready", "web", pod.Probes{ContainerID: "u1", Ready: bad})
		b.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, dir)
		again := func(p *v1.Pod, id string) {
			b.Sync(p, "10.0.0.1", []pod.ProbeTarget{{Container: &p.Spec.Containers[0], ContainerID: id, StartedAt: began.Add(-sec)}}, false)
		}
		b.by(func(_ context.Context, j job) answer {
			if j.containerID == "u1" {
				return answer{verdict: success}
			}
			return answer{verdict: failure, message: "down"}
		})
		again(ready, "r1")
		again(unready, "u1")
		b.expect("ready", "web", pod.Probes{ContainerID: "r1", Startup: ok, Ready: ok, Live: ok})
		b.expect("unready", "web", pod.Probes{ContainerID: "u1", Ready: bad})
		b.at(61 * sec) // one failure of three; one success of one
		b.expect("ready", "web", pod.Probes{ContainerID: "r1", Startup: ok, Ready: ok, Live: ok})
		b.expect("unready", "web", pod.Probes{ContainerID: "u1", Ready: ok})
		b.at(181 * sec)
		b.expect("ready", "web", pod.Probes{ContainerID: "r1", Startup: ok, Ready: bad, Live: bad})
		b.expectRuns("Startup r1")
		// A restarted container has nothing of it.
		b.sync(unready, "u2")
		b.Forget("ready")
		b.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, dir)
		b.sync(ready, "r1")
		b.sync(unready, "u1")
		b.expect("ready", "web", pod.Probes{ContainerID: "r1"})
		b.expect("unready", "web", pod.Probes{ContainerID: "u1"})
		b.stop()
	})
}

func TestALivenessFailureSurvivesARestartOfPodd(t *testing.T) {
	dir := t.TempDir()
	p := aPod("a", nil, nil, with(every(1), func(p *v1.Probe) { p.FailureThreshold = 1 }))
	for _, after := range []time.Duration{2 * sec, 0} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, dir)
			b.Sync(p, "10.0.0.1", []pod.ProbeTarget{{Container: &p.Spec.Containers[0], ContainerID: "a1", StartedAt: time.Now()}}, false)
			b.at(after)
			b.expect("a", "web", pod.Probes{ContainerID: "a1", Live: bad})
			b.stop()
		})
	}
}
