package events

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// show is one line an event: reason, container, count, over how long, message.
func show(r *Recorder) []string {
	var lines []string
	for _, e := range r.List(Filter{}) {
		lines = append(lines, fmt.Sprintf("%s %s x%d over %s: %s", e.Reason, e.InvolvedObject.FieldPath, e.Count,
			e.LastTimestamp.Sub(e.FirstTimestamp.Time), e.Message))
	}
	return lines
}

func TestSimilarEventsAreCombinedAfterNine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{})
		for i := range 30 {
			r.ContainerEvent(aPod("a"), "main", v1.EventTypeWarning, "Unhealthy", fmt.Sprintf("Readiness probe failed: try %d", i))
			time.Sleep(10 * time.Second)
		}
		all := show(r)
		if len(all) != 10 || all[0] != "Unhealthy spec.containers{main} x1 over 0s: Readiness probe failed: try 0" {
			t.Errorf("got %d events, first %q; want nine and one", len(all), all[0])
		}
		want := "Unhealthy spec.containers{main} x21 over 3m20s: (combined from similar events): Readiness probe failed: try 29"
		if got := all[len(all)-1]; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		r.ContainerEvent(aPod("a"), "main", v1.EventTypeWarning, "Unhealthy", "Readiness probe failed: try 3")
		if got := show(r)[9]; got != "Unhealthy spec.containers{main} x2 over 4m30s: Readiness probe failed: try 3" {
			t.Errorf("one of the first nine again: got %q", got)
		}
		r.Event(aPod("a"), v1.EventTypeNormal, "Killing", "Stopping container main")
		if got := show(r); len(got) != 11 {
			t.Errorf("another reason: got %d events, want it told by itself", len(got))
		}

		time.Sleep(11 * time.Minute)
		r.ContainerEvent(aPod("a"), "main", v1.EventTypeWarning, "Unhealthy", "Readiness probe failed: try 40")
		if got := show(r); got[len(got)-1] != "Unhealthy spec.containers{main} x1 over 0s: Readiness probe failed: try 40" {
			t.Errorf("after a pause of eleven minutes: got %q, want it told by itself", got[len(got)-1])
		}
	})
}

// TestCrashLoopOfADay: what it costs is bounded, and its counts say what
// happened.
func TestCrashLoopOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		r := New(Config{Metrics: reg})
		p := aPod("a")
		r.Event(p, v1.EventTypeNormal, "Scheduled", "once")
		const crashes = 24 * 12
		for i := range crashes {
			r.ContainerEvent(p, "main", v1.EventTypeNormal, "Pulled", "there")
			r.ContainerEvent(p, "main", v1.EventTypeNormal, "Created", "Container created")
			r.ContainerEvent(p, "main", v1.EventTypeNormal, "Started", "Container started")
			r.ContainerEvent(p, "main", v1.EventTypeWarning, "Unhealthy", fmt.Sprintf("Liveness probe failed: %d", i))
			for range 20 {
				r.ContainerEvent(p, "main", v1.EventTypeWarning, "BackOff", "Back-off restarting failed container")
				time.Sleep(15 * time.Second)
			}
		}
		r.Event(p, v1.EventTypeWarning, "Evicted", "low on memory")
		all := show(r)
		if len(all) > 16 {
			t.Errorf("got %d events, want few:\n%s", len(all), strings.Join(all, "\n"))
		}
		for _, want := range []string{
			"Scheduled  x1 over 0s: once",
			fmt.Sprintf("Created spec.containers{main} x%d over 23h55m0s: Container created", crashes),
			fmt.Sprintf("BackOff spec.containers{main} x%d over 23h59m45s: Back-off restarting failed container", crashes*20),
			fmt.Sprintf("Unhealthy spec.containers{main} x%d over 23h10m0s: (combined from similar events): Liveness probe failed: %d", crashes-9, crashes-1),
			"Evicted  x1 over 0s: low on memory",
		} {
			if !slices.Contains(all, want) {
				t.Errorf("there is no %q in:\n%s", want, strings.Join(all, "\n"))
			}
		}
		if h := r.pods[p.UID]; len(h.kinds) > 10 || len(h.spamLimits) > 3 {
			t.Errorf("remembers %d kinds and %d things", len(h.kinds), len(h.spamLimits))
		}
		want := strings.NewReader(`
# HELP podd_events_discarded_total Events that were not kept, since there were too many new ones about one thing (spam), or that made room for newer ones (old).
# TYPE podd_events_discarded_total counter
podd_events_discarded_total{why="old"} 0
podd_events_discarded_total{why="spam"} 0
`)
		if err := testutil.GatherAndCompare(reg, want, "podd_events_discarded_total"); err != nil {
			t.Error(err)
		}
	})
}

func TestNewEventsAboutOneThingAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		r := New(Config{Metrics: reg})
		p := aPod("a")
		for i := range 100 {
			r.Event(p, v1.EventTypeWarning, fmt.Sprintf("Reason%d", i), "x")
		}
		if n := len(r.List(Filter{})); n != spamBurst {
			t.Errorf("100 at once: got %d, want %d", n, spamBurst)
		}
		r.Event(p, v1.EventTypeWarning, "Reason3", "x")
		if all := r.List(Filter{}); all[len(all)-1].Reason != "Reason3" || all[len(all)-1].Count != 2 {
			t.Error("a repeat was not counted")
		}
		r.ContainerEvent(p, "main", v1.EventTypeNormal, "Started", "x")
		if n := len(r.List(Filter{})); n != spamBurst+1 {
			t.Error("an event about a container was held against its pod")
		}
		time.Sleep(11 * time.Minute)
		for i := range 100 {
			r.Event(p, v1.EventTypeWarning, fmt.Sprintf("Later%d", i), "x")
		}
		if n := len(r.List(Filter{})); n != spamBurst+1+2 {
			t.Errorf("after eleven minutes: got %d events, want two more", n)
		}
		if got := testutil.ToFloat64(r.metrics.discarded.WithLabelValues(discardedSpam)); got != 75+98 {
			t.Errorf("discarded: got %v, want 173", got)
		}
	})
}

// TestTenContainersLoseNoEvent: a pod of ten containers tells of each start.
func TestTenContainersLoseNoEvent(t *testing.T) {
	r := New(Config{})
	p := aPod("a")
	for i := range 10 {
		name := fmt.Sprintf("c%d", i)
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
		for _, reason := range []string{"Pulled", "Created", "Started"} {
			r.ContainerEvent(p, name, v1.EventTypeNormal, reason, "Container "+strings.ToLower(reason))
		}
	}
	if n := len(r.List(Filter{})); n != 30 {
		t.Errorf("got %d events, want 30", n)
	}
}

// TestMemoryIsBoundedWhateverComes: hostile manifests and reasons.
func TestMemoryIsBoundedWhateverComes(t *testing.T) {
	r := New(Config{})
	for i := range 5000 {
		r.ManifestEvent("default", fmt.Sprintf("pod%d", i), v1.EventTypeWarning, "FailedValidation", "wrong")
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "u"}}
		r.ContainerEvent(p, fmt.Sprintf("c%d", i), v1.EventTypeWarning, fmt.Sprintf("Reason%d", i), fmt.Sprint(i))
	}
	for uid, h := range r.pods {
		if len(h.kinds) > maxKinds || len(h.spamLimits) > maxSubjects || len(h.events) > DefaultMaxPerPod {
			t.Errorf("%q: %d kinds, %d things, %d events", uid, len(h.kinds), len(h.spamLimits), len(h.events))
		}
	}
}

func BenchmarkRepeat(b *testing.B) {
	r := New(Config{})
	p := aPod("a")
	for b.Loop() {
		r.Event(p, v1.EventTypeWarning, "BackOff", "Back-off restarting failed container")
	}
}
