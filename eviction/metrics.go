package eviction

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

type metrics struct {
	age      *prometheus.HistogramVec
	pressure *prometheus.GaugeVec
}

// newMetrics registers nothing without a registerer. kubelet_evictions is the agent's, which
// evicts for limits, too.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		age: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_eviction_stats_age_seconds",
			Help: "Time between when stats are collected, and when pod is evicted based on those stats by eviction signal",
		}, []string{"eviction_signal"}),
		pressure: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "podd_node_pressure",
			Help: "1 while the node is under the condition of pressure, 0 otherwise.",
		}, []string{"condition"}),
	}
	m.setConditions(nil)
	if reg != nil {
		reg.MustRegister(m.age, m.pressure)
	}
	return m
}

func (m *metrics) setConditions(hold []v1.NodeConditionType) {
	for _, c := range conditionTypes {
		value := 0.0
		if slices.Contains(hold, c) {
			value = 1
		}
		m.pressure.WithLabelValues(string(c)).Set(value)
	}
}
