package agent_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"podd/agent"
)

// measured plays a scenario with podds whose metrics can be read. value returns a sample, or the
// count of a histogram, of the last podd; 0 if there is none.
func measured(t *testing.T, test func(s *scenario, value func(name string, labels ...string) float64)) {
	inBubble(t, func(t *testing.T, s *scenario) {
		var reg *prometheus.Registry
		s.edit = func(_ context.Context, _ *podd, cfg *agent.Config) {
			reg = prometheus.NewRegistry()
			cfg.Metrics = reg
		}
		test(s, func(name string, labels ...string) float64 {
			t.Helper()
			synctest.Wait()
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				for _, m := range f.Metric {
					if f.GetName() == name && hasLabels(m, labels) {
						return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
					}
				}
			}
			return 0
		})
	})
}

// hasLabels says whether a sample has these values of labels, in the order of their names.
func hasLabels(m *dto.Metric, values []string) bool {
	if len(m.Label) != len(values) {
		return false
	}
	for i, l := range m.Label {
		if l.GetValue() != values[i] {
			return false
		}
	}
	return true
}

// expect compares samples with what they should be.
type expected struct {
	name   string
	labels []string
	want   float64
}

func expect(t *testing.T, when string, value func(string, ...string) float64, all ...expected) {
	t.Helper()
	for _, e := range all {
		if got := value(e.name, e.labels...); got != e.want {
			t.Errorf("%s: %s%q is %v, want %v", when, e.name, e.labels, got, e.want)
		}
	}
}

// TestStartsAndEndsAreCounted of pods and containers, by kind, code and reason.
func TestStartsAndEndsAreCounted(t *testing.T) {
	measured(t, func(s *scenario, value func(string, ...string) float64) {
		s.files["first.yaml"] = []byte("metadata: {name: first}\nspec: {hostUsers: false, initContainers: [{name: setup, image: i}], containers: [{name: web, image: i}]}")
		s.play("restart-agent; sleep 1s; expect shop/web running")
		expect(t, "a pod was adopted", value,
			expected{"kubelet_started_pods_total", nil, 0}, expected{"kubelet_started_containers_total", []string{"container"}, 0},
			expected{"kubelet_containers_per_pod_count", nil, 1}, expected{"kubelet_pod_worker_start_duration_seconds", nil, 1})
		s.play("fail 2 RunSandbox first; apply first.yaml; sleep 1m; exit first/setup code=0; sleep 1s; expect first/web running")
		expect(t, "the second pod has started at the third attempt", value,
			expected{"kubelet_started_pods_total", nil, 3}, expected{"kubelet_started_pods_errors_total", nil, 2},
			expected{"kubelet_started_user_namespaced_pods_total", nil, 3}, expected{"kubelet_started_user_namespaced_pods_errors_total", nil, 2},
			expected{"kubelet_started_containers_total", []string{"init_container"}, 1}, expected{"kubelet_started_containers_total", []string{"container"}, 1},
			expected{"kubelet_terminated_containers_total", []string{"init_container", "0", "Completed"}, 1},
			expected{"kubelet_pod_start_total_duration_seconds", nil, 1}, expected{"kubelet_pod_start_sli_duration_seconds", nil, 1})
		if first := value("kubelet_first_network_pod_start_sli_duration_seconds"); first <= 0 {
			t.Errorf("the first pod with a network took %v s", first)
		}
		s.play("fail 1 StartContainer first; exit first/web code=3; sleep 5m; expect first/web running")
		if got := value("kubelet_terminated_containers_total", "container", "3", "Error"); got != 1 {
			t.Errorf("a container that has failed with 3 counts %v times, want once", got)
		}
		if got := value("kubelet_started_containers_errors_total", "StartContainerError", "container"); got != 1 {
			t.Errorf("a failed start of a container counts %v times, want once", got)
		}
		if got := value("kubelet_started_user_namespaced_pods_errors_total"); got != 2 {
			t.Errorf("a restart counts as a start of the pod: %v", got)
		}
		s.play("restart-agent; sleep 1m")
		expect(t, "what an earlier podd has seen does not count again", value,
			expected{"kubelet_terminated_containers_total", []string{"container", "3", "Error"}, 0})
	})
}

// TestPodsAreCountedByTheirStage, and by whether somebody wants them.
func TestPodsAreCountedByTheirStage(t *testing.T) {
	working := func(lifecycle, config, static string, n float64) expected {
		return expected{"kubelet_working_pods", []string{config, lifecycle, static}, n}
	}
	measured(t, func(s *scenario, value func(string, ...string) float64) {
		s.play("restart-agent; sleep 1s")
		expect(t, "one runs", value, working("sync", "desired", "true", 1), working("terminating", "orphan", "true", 0),
			expected{"kubelet_desired_pods", []string{"true"}, 1}, expected{"kubelet_desired_pods", []string{""}, 0}, expected{"kubelet_active_pods", []string{"true"}, 1})
		s.play("stubborn shop; remove shop; sleep 1s")
		expect(t, "it was removed", value, working("sync", "desired", "true", 0), working("terminating", "orphan", "true", 1),
			expected{"kubelet_desired_pods", []string{"true"}, 0}, expected{"kubelet_active_pods", []string{"true"}, 1})
		s.play("apply shop.yaml; sleep 5m; expect shop/web running")
		expect(t, "it came back while it was ending", value, working("sync", "desired", "true", 1), expected{"kubelet_restarted_pods_total", []string{"true"}, 1})
		s.files["job.yaml"] = []byte("metadata: {name: job}\nspec: {restartPolicy: Never, containers: [{name: a, image: a}]}")
		s.play("apply job.yaml; sleep 1s; exit job/a code=0; sleep 1m; expect job phase=Succeeded")
		expect(t, "another has completed", value, working("sync", "desired", "true", 1), working("terminated", "desired", "true", 1),
			expected{"kubelet_desired_pods", []string{"true"}, 2}, expected{"kubelet_active_pods", []string{"true"}, 1})
		s.play("stop-agent; remove shop; start-agent; speak http; sleep 1s")
		expect(t, "one was removed while podd was down", value, expected{"kubelet_orphaned_runtime_pods_total", nil, 1})
	})
}

func TestPreemptionsAreCounted(t *testing.T) {
	measured(t, func(s *scenario, value func(string, ...string) float64) {
		s.files["critical.yaml"] = []byte("metadata: {name: critical}\nspec: {priority: 2000000000, containers: [{name: a, image: a}]}")
		s.play("restart-agent; sleep 1s; preempt critical shop; apply critical.yaml; sleep 5m; expect shop phase=Failed reason=Preempting")
		expect(t, "a pod was preempted", value, expected{"kubelet_preemptions", []string{"cpu"}, 1})
	})
}
