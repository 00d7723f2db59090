package podresources

import "github.com/prometheus/client_golang/prometheus"

// version is that of the API with all these calls, the label of its metrics.
const version = "v1"

// metrics are the kubelet's.
type metrics struct{ total, list, get, allocatable, getErrors *prometheus.CounterVec }

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_pod_resources_endpoint_" + name, Help: help}, []string{"server_api_version"})
		reg.MustRegister(c)
		return c
	}
	return &metrics{
		total:       counter("requests_total", "Requests to the pod resources API."),
		list:        counter("requests_list", "Requests of List to the pod resources API."),
		get:         counter("requests_get", "Requests of Get to the pod resources API."),
		allocatable: counter("requests_get_allocatable", "Requests of GetAllocatableResources to the pod resources API."),
		getErrors:   counter("errors_get", "Requests of Get to the pod resources API for a pod that is not there."),
	}
}

func (m *metrics) count(which *prometheus.CounterVec) {
	m.total.WithLabelValues(version).Inc()
	which.WithLabelValues(version).Inc()
}
