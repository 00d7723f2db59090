package identity

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the kubelet's metrics of one certificate. The methods do nothing on a nil
// Metrics.
type Metrics struct {
	notAfter atomic.Int64 // Unix seconds; 0 for no certificate
	failures prometheus.Counter
	ages     prometheus.Histogram // nil for the client certificate
}

// ClientMetrics and ServingMetrics register the metrics of the kubelet's two certificates.
func ClientMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{failures: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_certificate_manager_client_expiration_renew_errors", Help: "Counter of certificate renewal errors.",
	})}
	reg.MustRegister(m.failures, m.gauge("kubelet_certificate_manager_client_ttl_seconds",
		"Gauge of the TTL (time-to-live) of the client certificate, in seconds; negative if it has expired, +Inf if there is none."))
	return m
}

// ServingMetrics registers the metrics of the serving certificate; see ClientMetrics.
func ServingMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_server_expiration_renew_errors", Help: "Counter of certificate renewal errors.",
		}),
		ages: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_certificate_manager_server_rotation_seconds",
			Help:    "Histogram of the number of seconds the previous certificate lived before being rotated.",
			Buckets: []float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000},
		}),
	}
	reg.MustRegister(m.failures, m.ages, m.gauge("kubelet_certificate_manager_server_ttl_seconds",
		"Gauge of the TTL (time-to-live) of the serving certificate, in seconds; negative if it has expired, +Inf if there is none."))
	return m
}

func (m *Metrics) gauge(name, help string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if at := m.notAfter.Load(); at != 0 {
			return math.Trunc(time.Until(time.Unix(at, 0)).Seconds())
		}
		return math.Inf(1)
	})
}

func (m *Metrics) expires(at time.Time) {
	if m != nil {
		m.notAfter.Store(at.Unix())
	}
}

func (m *Metrics) failed() {
	if m != nil {
		m.failures.Inc()
	}
}

func (m *Metrics) rotated(age time.Duration) {
	if m != nil && m.ages != nil {
		m.ages.Observe(age.Seconds())
	}
}
