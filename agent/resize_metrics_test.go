package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"

	"podd/agent"
)

// metered is resizing with the values of the metrics about resizes: by name and labels, without
// kubelet_. A histogram has its count and its sum.
func metered(t *testing.T, play func(s *scenario, n *smallNode, values func() map[string]string)) {
	resizing(t, func(s *scenario, n *smallNode) {
		reg := prometheus.NewRegistry()
		s.edit = func(_ context.Context, _ *podd, cfg *agent.Config) { cfg.Metrics = reg }
		s.play("restart-agent; speak file; speak http")
		play(s, n, func() map[string]string {
			t.Helper()
			all, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			values := map[string]string{}
			for _, family := range all {
				name, ours := strings.CutPrefix(family.GetName(), "kubelet_")
				if !ours || !strings.Contains(name, "resize") && !strings.Contains(name, "level_resources") {
					continue
				}
				for _, m := range family.GetMetric() {
					values[name+labelsOf(m)] = valueOf(m)
				}
			}
			return values
		})
	})
}

func labelsOf(m *dto.Metric) string {
	var all []string
	for _, l := range m.GetLabel() {
		all = append(all, l.GetValue())
	}
	return "{" + strings.Join(all, ",") + "}"
}

func valueOf(m *dto.Metric) string {
	switch {
	case m.GetHistogram() != nil:
		return fmt.Sprintf("%d in %v", m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum())
	case m.GetCounter() != nil:
		return fmt.Sprint(m.GetCounter().GetValue())
	}
	return fmt.Sprint(m.GetGauge().GetValue())
}

// nonZero are the values that are not zero.
func nonZero(all map[string]string) map[string]string {
	maps.DeleteFunc(all, func(_, value string) bool { return value == "0" })
	return all
}

func expectMetrics(t *testing.T, when string, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: %s is %q, want %q", when, name, got[name], want[name])
		}
	}
	for name, value := range got {
		if _, expected := want[name]; !expected && !strings.HasPrefix(name, "pod_resize_duration") {
			t.Errorf("%s: %s is %s, want none", when, name, value)
		}
	}
}

// TestADeferredResizeIsMeasured from its first refusal until it is accepted, taken back, or the pod
// ends.
func TestADeferredResizeIsMeasured(t *testing.T) {
	metered(t, func(s *scenario, _ *smallNode, values func() map[string]string) {
		s.play("apply a-100.yaml api; apply b-600.yaml api; sleep 1s; update a-900.yaml; sleep 10s")
		admitted := map[string]string{"pod_level_resources_admission_total{container_level,burstable}": "2"}
		with := func(more map[string]string) map[string]string {
			maps.Copy(admitted, more)
			return admitted
		}
		expectMetrics(t, "waiting", nonZero(values()), with(map[string]string{
			"container_requested_resizes_total{increase,requests,cpu}": "1", "pod_pending_resizes{normal,deferred}": "1",
		}))
		s.play("update a-100.yaml; sleep 1s")
		delete(admitted, "pod_pending_resizes{normal,deferred}")
		expectMetrics(t, "taken back", nonZero(values()), with(map[string]string{
			"container_requested_resizes_total{decrease,requests,cpu}": "1",
			"pod_deferred_resize_duration_seconds{normal,reverted}":    values()["pod_deferred_resize_duration_seconds{normal,reverted}"],
		}))
		s.play("update a-900.yaml; sleep 10s; remove b api; sleep 40s; expect b known=false")
		got := nonZero(values())
		if got["pod_resize_duration_milliseconds{true}"] == "" || !strings.HasPrefix(got["pod_deferred_resize_duration_seconds{normal,reverted}"], "1 in ") {
			t.Errorf("got %v, want a resize that was carried out and one that was taken back", got)
		}
		if got["pod_deferred_accepted_resizes_total{pod_terminated}"] == "" && got["pod_deferred_accepted_resizes_total{pods_removed}"] == "" {
			t.Errorf("got %v, want a resize that was accepted as another pod went", got)
		}
		if !strings.HasPrefix(got["pod_deferred_resize_duration_seconds{normal,accepted}"], "1 in 1") {
			t.Errorf("got %v, want a resize that waited for some ten seconds", got)
		}
		s.play("apply b-100.yaml api; sleep 1s; update b-600.yaml; sleep 10s; remove b api; sleep 40s; expect b known=false; remove a api; sleep 40s; expect a known=false")
		got = nonZero(values())
		if !strings.HasPrefix(got["pod_deferred_resize_duration_seconds{normal,terminated}"], "1 in 1") {
			t.Errorf("got %v, want a resize that ended with its pod", got)
		}
		for _, name := range []string{"pod_pending_resizes{normal,deferred}", "pod_in_progress_resizes{}"} {
			if value, left := got[name]; left {
				t.Errorf("nothing is left, and %s is %s", name, value)
			}
		}
	})
}

// TestAResizeThatFailsIsInProgress until it is done, and each attempt is measured.
func TestAResizeThatFailsIsInProgress(t *testing.T) {
	metered(t, func(s *scenario, n *smallNode, values func() map[string]string) {
		n.set(func() { n.fail = errors.New("no") })
		s.play("apply a-100.yaml api; sleep 1s; update a-400-20Mi.yaml; sleep 1s")
		got := values()
		if got["pod_in_progress_resizes{}"] != "1" || !strings.HasPrefix(got["pod_resize_duration_milliseconds{false}"], "1 in ") || s.is("a", v1.PodResizeInProgress) == "" {
			t.Errorf("got %v, want one in progress", got)
		}
		for _, name := range []string{"container_requested_resizes_total{increase,requests,cpu}", "container_requested_resizes_total{add,limits,memory}"} {
			if got[name] != "1" {
				t.Errorf("%s is %q, want 1", name, got[name])
			}
		}
		n.set(func() { n.fail = nil })
		s.play("sleep 15s")
		if got = values(); got["pod_in_progress_resizes{}"] != "0" || !strings.HasPrefix(got["pod_resize_duration_milliseconds{true}"], "1 in ") {
			t.Errorf("got %v, want none in progress", got)
		}
	})
}

// TestAnInfeasibleResizeIsPendingByPriority.
func TestAnInfeasibleResizeIsPendingByPriority(t *testing.T) {
	for priority, bucket := range map[int]string{
		2_000_000_000: "system-critical", 1_999_999_999: "high", 100_000: "high", 99_999: "medium", 1: "medium", 0: "normal", -1: "low", -999: "low", -1000: "very-low",
	} {
		metered(t, func(s *scenario, n *smallNode, values func() map[string]string) {
			n.set(func() { n.infeasible = true })
			for _, milli := range []int{100, 400} {
				s.files[fmt.Sprintf("a-%d.yaml", milli)] = fmt.Appendf(nil, "metadata: {name: a}\n"+
					"spec: {priority: %d, resources: {limits: {cpu: 1}}, containers: [{name: web, resources: {requests: {cpu: %dm}}}]}\n", priority, milli)
			}
			s.play("apply a-100.yaml api; sleep 1s; update a-400.yaml; sleep 1s")
			got := values()
			if name := "pod_pending_resizes{" + bucket + ",infeasible}"; got[name] != "1" {
				t.Errorf("priority %d: got %v, want %s", priority, got, name)
			}
			if got["pod_level_resources_admission_total{pod_and_container_level,burstable}"] != "1" {
				t.Errorf("got %v, want a pod with resources of both levels", got)
			}
			s.play("remove a api; sleep 40s; expect a known=false")
			if got := nonZero(values()); got["pod_pending_resizes{"+bucket+",infeasible}"] != "" {
				t.Errorf("priority %d: it is gone, and %v", priority, got)
			}
		})
	}
}
