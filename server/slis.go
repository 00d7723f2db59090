package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sliMetrics are the metrics about health checks that Kubernetes components serve on
// /metrics/slis (KEP-3466). They change only when somebody requests all checks of an endpoint.
// A request for a single check does not count.
type sliMetrics struct {
	registry *prometheus.Registry
	result   *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

func newSLIMetrics() *sliMetrics {
	m := &sliMetrics{
		registry: prometheus.NewRegistry(),
		result: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "The last result of a health check: 1 for success, 0 for an error.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Results of health checks, by status.",
		}, []string{"name", "type", "status"}),
	}
	started := prometheus.NewGauge(prometheus.GaugeOpts{Name: "process_start_time_seconds", Help: "Start time of the process since unix epoch in seconds."})
	started.Set(float64(time.Now().UnixMilli()) / 1000)
	m.registry.MustRegister(m.result, m.total, started)
	return m
}

// observe records a check's result on an endpoint, such as readyz.
func (m *sliMetrics) observe(check, endpoint string, err error) {
	value, status := 1.0, "success"
	if err != nil {
		value, status = 0, "error"
	}
	m.result.WithLabelValues(check, endpoint).Set(value)
	m.total.WithLabelValues(check, endpoint, status).Inc()
}
