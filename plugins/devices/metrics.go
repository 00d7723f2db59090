package devices

import "github.com/prometheus/client_golang/prometheus"

// metrics are the kubelet's. Their label is bounded by maxResources.
type metrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_device_plugin_registration_total", Help: "Registrations of device plugins, by resource.",
		}, []string{"resource_name"}),
		allocations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_device_plugin_alloc_duration_seconds", Help: "How long device plugins took to respond to Allocate, by resource.", Buckets: prometheus.DefBuckets,
		}, []string{"resource_name"}),
	}
	reg.MustRegister(m.registrations, m.allocations)
	return m
}

func (m *metrics) forget(resource string) {
	m.registrations.DeleteLabelValues(resource)
	m.allocations.DeleteLabelValues(resource)
}
