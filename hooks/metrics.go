package hooks

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics has upstream's names (pkg/kubelet/metrics/metrics.go).
type metrics struct {
	fallbacks, sleepTerminatedEarly prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		fallbacks: f.NewCounter(prometheus.CounterOpts{Name: "kubelet_lifecycle_handler_http_fallbacks_total",
			Help: "Lifecycle handlers that asked for https and were answered over http."}),
		sleepTerminatedEarly: f.NewCounter(prometheus.CounterOpts{Name: "kubelet_sleep_action_terminated_early_total",
			Help: "Sleeps of lifecycle handlers that were cut short."}),
	}
}
