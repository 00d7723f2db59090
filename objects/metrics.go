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
			Help: "ConfigMaps, Secrets, PersistentVolumes and claims that the sources have, by kind."}, []string{"kind"}),
		changes: f.NewCounterVec(prometheus.CounterOpts{Name: "podd_object_changes_total",
			Help: "ConfigMaps, Secrets, PersistentVolumes and claims that came, changed their content or went, by kind."}, []string{"kind"}),
	}
	m.count(nil)
	return m
}

func (m *metrics) count(entries map[pod.ObjectKey]entry) {
	n := make(map[string]int, len(pod.ObjectKinds))
	for _, kind := range pod.ObjectKinds {
		n[kind] = 0
	}
	for key := range entries {
		n[key.Kind]++
	}
	for kind, n := range n {
		m.objects.WithLabelValues(kind).Set(float64(n))
	}
}
