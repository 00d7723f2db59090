package objects

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"podd/internal/pod"
)

type metrics struct {
	objects *prometheus.GaugeVec
	changes *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		objects: f.NewGaugeVec(prometheus.GaugeOpts{Name: "podd_objects",
			Help: "ConfigMaps and Secrets that the sources have, by kind."}, []string{"kind"}),
		changes: f.NewCounterVec(prometheus.CounterOpts{Name: "podd_object_changes_total",
			Help: "ConfigMaps and Secrets that were added, changed or removed, by kind."}, []string{"kind"}),
	}
	m.count(nil)
	return m
}

func (m *metrics) count(entries map[pod.ObjectKey]entry) {
	n := map[string]int{pod.KindConfigMap: 0, pod.KindSecret: 0}
	for key := range entries {
		n[key.Kind]++
	}
	for kind, n := range n {
		m.objects.WithLabelValues(kind).Set(float64(n))
	}
}
