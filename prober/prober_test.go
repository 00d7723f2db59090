package prober

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/budget"
	"podd/internal/pod"
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

// TestProbesWaitByNoClockThatMayBeSet: a container's start, as the runtime has it,
// is by the wall clock. In the future, it counts as now.
func TestProbesWaitByNoClockThatMayBeSet(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.succeed()
		b.at(100 * sec)
		delayed := func(p *v1.Probe) { p.InitialDelaySeconds = 20 }
		p := aPod("a", nil, with(every(10), delayed), with(every(10), delayed))
		target := pod.ProbeTarget{Container: &p.Spec.Containers[0], ContainerID: "a1", StartedAt: time.Now().Add(time.Hour).Round(0)}
		b.Sync(p, "10.0.0.1", []pod.ProbeTarget{target}, false)
		b.at(105 * sec)
		target.StartedAt = time.Now().Add(-time.Hour).Round(0) // said anew, by a clock that was set again
		b.Sync(p, "10.0.0.1", []pod.ProbeTarget{target}, false)
		b.at(136 * sec)
		b.expectRuns("Readiness a1", 120*sec, 130*sec)
		b.expectRuns("Liveness a1", 120*sec, 130*sec)
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
		b.by(func(context.Context, job) attemptResult {
			if n++; n == 3 {
				return attemptResult{verdict: success}
			}
			return attemptResult{verdict: failure}
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

// TestAStartupProbeThatHangsTakesNoLongerThanItsFieldsPromise: a run counted by
// when it began, so that the first one, however long, was none of
// failureThreshold, and a container had up to twice its time.
func TestAStartupProbeThatHangsTakesNoLongerThanItsFieldsPromise(t *testing.T) {
	for _, c := range []struct {
		period, timeout, threshold int32
		hangs                      bool
		want                       time.Duration
	}{
		{10, 10, 3, true, 30 * sec},
		{300, 300, 1, true, 300 * sec},
		{10, 10, 1, true, 10 * sec},
		{10, 15, 3, true, 45 * sec}, // three runs, one after another
		{10, 10, 3, false, 30 * sec},
		{10, 10, 1, false, 10 * sec},
	} {
		inBubble(t, func(b *bench) {
			b.by(func(_ context.Context, j job) attemptResult {
				if c.hangs {
					time.Sleep(j.timeout)
				}
				return attemptResult{verdict: failure, message: "down"}
			})
			b.sync(aPod("a", with(every(c.period), func(p *v1.Probe) { p.TimeoutSeconds, p.FailureThreshold = c.timeout, c.threshold }), nil, nil), "a1")
			b.at(c.want - millis)
			b.expect("a", "web", pod.Probes{ContainerID: "a1"})
			b.at(c.want)
			b.expect("a", "web", pod.Probes{ContainerID: "a1", Startup: bad})
			b.mu.Lock()
			defer b.mu.Unlock()
			if want := fmt.Sprintf("%v web Warning Unhealthy: Startup probe failed: down", c.want); len(b.events) == 0 || b.events[len(b.events)-1] != want {
				t.Errorf("%+v: got events %q, want the last to be %q", c, b.events, want)
			}
		})
	}
}

// TestEachFailureOfALivenessProbeCounts, also one right after a run that took
// longer than a period.
func TestEachFailureOfALivenessProbeCounts(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.by(func(context.Context, job) attemptResult {
			if time.Since(b.begun) < 15*sec {
				time.Sleep(15 * sec)
			}
			return attemptResult{verdict: failure}
		})
		b.sync(aPod("a", nil, nil, with(every(10), func(p *v1.Probe) { p.TimeoutSeconds = 15 })), "a1")
		b.at(29 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1"})
		b.at(30 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Live: bad})
		b.expectRuns("Liveness a1", 10*sec, 25*sec, 30*sec)
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
		b.at(maxFastTime + 101*sec)
		if got := len(b.ran("Readiness a1")); got != 611 {
			t.Errorf("got %d runs of readiness, want one a second for 600 s and ten more", got)
		}
		if got := len(b.ran("Liveness a1")); got != 70 {
			t.Errorf("got %d runs of liveness, want 70", got)
		}
	})
}

// TestFastProbesOfAllPodsShareTheNodesBudget: a hundred pods whose commands run ten times
// a second until they succeed. Beyond the budget each runs once per period.
func TestFastProbesOfAllPodsShareTheNodesBudget(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.cfg.Budget = budget.New(prometheus.NewRegistry())
		const pods, seconds = 100, 100
		for i := range pods {
			p := aPod(pod.UID(fmt.Sprint("pod", i)), nil, with(every(10), func(p *v1.Probe) {
				p.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"false"}}}
			}), nil)
			p.Annotations = map[string]string{pod.AnnotationProbeUntilSuccess: "100ms"}
			b.sync(p, fmt.Sprint("c", i))
		}
		b.at(seconds * sec)
		const ordinary = pods * (seconds/10 + 2) // with the first, and that at one second of age
		most := int((budget.Burst+seconds*budget.Rate)/(30*time.Millisecond)) + 1
		got := 0
		for i := range pods {
			got += len(b.ran(fmt.Sprint("Readiness c", i)))
		}
		if got < ordinary-pods || got > ordinary+most {
			t.Errorf("got %d runs in %d s, want %d and at most %d early ones", got, seconds, ordinary, most)
		}
	})
}

func TestAProbeThatCannotBeRunIsTriedThreeTimesAndCountsNeitherWay(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.by(func(context.Context, job) attemptResult {
			return attemptResult{verdict: unknown, err: errors.New("no such command")}
		})
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
		b.by(func(_ context.Context, j job) attemptResult {
			time.Sleep(min(j.timeout, 700*millis))
			return attemptResult{verdict: unknown, err: errors.New("broken")}
		})
		b.sync(aPod("a", nil, nil, every(10)), "a1")
		b.at(15 * sec)
		b.expectRuns("Liveness a1", 10*sec, 10700*millis)
	})
}

func TestAProbeThatHangsDelaysNoOther(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.by(func(ctx context.Context, j job) attemptResult {
			if j.containerID == "hung" {
				select {
				case <-time.After(j.timeout):
					return attemptResult{verdict: failure, message: "timeout"}
				case <-ctx.Done():
					return attemptResult{verdict: unknown, err: ctx.Err()}
				}
			}
			return attemptResult{verdict: success}
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
		b.by(func(ctx context.Context, _ job) attemptResult {
			<-ctx.Done()
			return attemptResult{verdict: failure, message: "killed"}
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

// TestAFlappingProbeFillsNoLog: it wakes its pod each time and is logged once a
// minute.
func TestAFlappingProbeFillsNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBench(t, "")
		b.log = slog.New(slog.NewTextHandler(&log, nil))
		n := 0
		b.by(func(context.Context, job) attemptResult {
			if n++; n%2 == 0 {
				return attemptResult{verdict: failure}
			}
			return attemptResult{verdict: success}
		})
		b.sync(aPod("a", nil, with(every(1), func(p *v1.Probe) { p.FailureThreshold = 1 }), nil), "a1")
		b.at(3600 * sec)
		b.stop()
		b.expectWakes(3601)
		if got := strings.Count(log.String(), "probe result changed"); got != 1 {
			t.Errorf("got %d lines of an hour's flapping, want 1", got)
		}
	})
}

func TestARemovedContainerIsForgotten(t *testing.T) {
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

// A container that appears while its pod ends (podd was restarted, or it was on
// its way) is asked whether it is ready, and nothing that could kill it.
func TestInATerminatingPodOnlyReadinessIsAsked(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := aPod("a", nil, every(5), every(5))
		b.Sync(p, "10.0.0.1", nil, true)
		b.Sync(p, "10.0.0.1", []pod.ProbeTarget{{Container: &p.Spec.Containers[0], ContainerID: "a1", StartedAt: time.Now()}}, true)
		slow := aPod("s", every(5), nil, every(5))
		b.Sync(slow, "10.0.0.2", nil, true)
		b.Sync(slow, "10.0.0.2", []pod.ProbeTarget{{Container: &slow.Spec.Containers[0], ContainerID: "s1", StartedAt: time.Now()}}, true)
		b.at(31 * sec)
		b.expectRuns("Liveness a1")
		b.expectRuns("Startup s1")
		b.expectRuns("Liveness s1")
		if got := b.ran("Readiness a1"); len(got) < 5 {
			t.Errorf("got readiness asked at %v, want it asked each 5 s", got)
		}
	})
}
