package status

import (
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

type metrics struct {
	changes prometheus.Counter
	phases  *prometheus.GaugeVec
	// uploads has how long changes took to reach the apiserver. An Uploader observes it.
	uploads prometheus.Histogram
}

var phases = []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "podd_pod_status_changes_total",
			Help: "Changes of pod statuses, pods that were forgotten included.",
		}),
		phases: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "podd_pods",
			Help: "Pods that podd knows, by phase of their status.",
		}, []string{"phase"}),
		uploads: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_pod_status_sync_duration_seconds",
			Help:    "Seconds from a change of a pod's status until the apiserver has it, failed attempts included.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 20, 30, 45, 60},
		}),
	}
	if reg != nil {
		reg.MustRegister(m.changes, m.phases, m.uploads)
	}
	for _, p := range phases {
		m.phases.WithLabelValues(string(p)).Set(0)
	}
	return m
}

// phaseChanged counts a pod that went from one phase to another; the empty phase is
// that of a pod that was not there, or is not any more.
func (m *metrics) phaseChanged(from, to v1.PodPhase) {
	if from != "" {
		m.phases.WithLabelValues(string(from)).Dec()
	}
	if to != "" {
		m.phases.WithLabelValues(string(to)).Inc()
	}
}
