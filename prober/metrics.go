package prober

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// metrics has upstream's two names with its labels and buckets
// (pkg/kubelet/prober/prober_manager.go), and podd's own.
type metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec

	execRate prometheus.Gauge
	execOver prometheus.Gauge
}

func newMetrics(own, perProbe prometheus.Registerer) *metrics {
	f, g := promauto.With(own), promauto.With(perProbe)
	return &metrics{
		total: g.NewCounterVec(prometheus.CounterOpts{Name: "prober_probe_total",
			Help: "Runs of a liveness, readiness or startup probe for a container, by result: successful, failed, or unknown for one that could not be run."},
			[]string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: g.NewHistogramVec(prometheus.HistogramOpts{Name: "prober_probe_duration_seconds",
			Help: "Seconds that a successful run of a probe took.", Buckets: prometheus.DefBuckets},
			[]string{"probe_type", "container", "pod", "namespace"}),
		execRate: f.NewGauge(prometheus.GaugeOpts{Name: "podd_exec_probes_per_second",
			Help: "Commands in containers that the probes run per second."}),
		execOver: f.NewGauge(prometheus.GaugeOpts{Name: "podd_exec_probes_excessive",
			Help: "1 while exec probes take more than a tenth of the machine, by their number."}),
	}
}

// probeMetrics are the metrics of one probe.
type probeMetrics struct {
	total    *prometheus.CounterVec
	duration prometheus.ObserverVec
}

func (m *metrics) forProbe(p *v1.Pod, name string, k kind) probeMetrics {
	duration := prometheus.Labels{"probe_type": k.String(), "container": name, "pod": p.Name, "namespace": p.Namespace}
	total := prometheus.Labels{"pod_uid": string(p.UID)}
	for label, value := range duration {
		total[label] = value
	}
	return probeMetrics{m.total.MustCurryWith(total), m.duration.MustCurryWith(duration)}
}

// observe counts one run. Upstream measures the duration of successes only.
func (r probeMetrics) observe(outcome pod.ProbeResult, took time.Duration) {
	result := [...]string{pod.ProbeUnknown: "unknown", pod.ProbeSucceeded: "successful", pod.ProbeFailed: "failed"}[outcome]
	r.total.WithLabelValues(result).Inc()
	if outcome == pod.ProbeSucceeded {
		r.duration.WithLabelValues().Observe(took.Seconds())
	}
}

// forget deletes the rows of a removed pod. Durations have no UID: they stay if
// another pod of that name is probed.
func (m *metrics) forget(p *v1.Pod, namesake bool) {
	m.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(p.UID)})
	if !namesake {
		m.duration.DeletePartialMatch(prometheus.Labels{"pod": p.Name, "namespace": p.Namespace})
	}
}
