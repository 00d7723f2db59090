package podconfig

import (
	"github.com/prometheus/client_golang/prometheus"
	"podd/internal/pod"
)

type metrics struct {
	problems *prometheus.GaugeVec
	errors   *prometheus.CounterVec
	pods     *prometheus.GaugeVec
	restarts *prometheus.CounterVec
}

// newMetrics registers the package's metrics, all labelled by source (file, http, api).
func newMetrics(reg prometheus.Registerer, sources []pod.Source) *metrics {
	by := []string{"source"}
	m := &metrics{
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "podd_manifest_problems", Help: "Problems of manifests at present, warnings aside; podd ps names them."}, by),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "podd_manifest_errors_total", Help: "Problems of manifests that have appeared, warnings aside."}, by),
		pods:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "podd_desired_pods", Help: "Pods that the source wants to run."}, by),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "podd_source_failures_total", Help: "Times a source failed and was started again."}, by),
	}
	if reg != nil {
		reg.MustRegister(m.problems, m.errors, m.pods, m.restarts)
	}
	for _, s := range sources {
		m.problems.WithLabelValues(string(s))
		m.errors.WithLabelValues(string(s))
		m.restarts.WithLabelValues(string(s))
	}
	return m
}
