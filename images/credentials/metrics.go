package credentials

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type providerMetrics struct {
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newProviderMetrics registers metrics with the kubelet's names; hash is the hash of the
// configuration.
func newProviderMetrics(reg prometheus.Registerer, hash string) *providerMetrics {
	m := &providerMetrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_credential_provider_plugin_errors_total",
			Help: "Number of errors from credential provider plugin",
		}, []string{"plugin_name"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_credential_provider_plugin_duration",
			Help:    "Duration of execution in seconds for credential provider plugin",
			Buckets: prometheus.DefBuckets,
		}, []string{"plugin_name"}),
	}
	if reg != nil {
		info := prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "kubelet_credential_provider_config_info",
			Help:        "Information about the last applied credential provider configuration with hash as label",
			ConstLabels: prometheus.Labels{"hash": hash},
		})
		info.Set(1)
		reg.MustRegister(m.errors, m.duration, info)
	}
	return m
}

func (m *providerMetrics) observe(plugin string, took time.Duration, err error) {
	m.duration.WithLabelValues(plugin).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(plugin).Inc()
	}
}
