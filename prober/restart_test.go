package prober

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// TestAfterARestartOfPoddProbesAreSpreadOverTheirPeriod and do not start in one
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
			if len(runs) != 3 || runs[1]-runs[0] > 10*sec+wakeAlignment || runs[1]-runs[0] < 10*sec-wakeAlignment {
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
		b.by(func(_ context.Context, j job) attemptResult {
			if j.containerID == "r1" {
				return attemptResult{verdict: success}
			}
			return attemptResult{verdict: failure}
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
		b.by(func(_ context.Context, j job) attemptResult {
			if j.containerID == "u1" {
				return attemptResult{verdict: success}
			}
			return attemptResult{verdict: failure, message: "down"}
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
