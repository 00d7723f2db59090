package archive

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	total   *prometheus.CounterVec
	seconds prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podd_image_imports_total",
			Help: "Imports of archives from the image directory, by result (imported, bad_archive, error).",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "podd_image_import_duration_seconds",
			Help:    "How long the import of an archive took, whatever its result.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 12),
		}),
	}
	if reg != nil {
		reg.MustRegister(m.total, m.seconds)
	}
	return m
}

func (m *metrics) observe(err error, took time.Duration) {
	result := "imported"
	if _, bad := errors.AsType[*InvalidError](err); bad {
		result = "bad_archive"
	} else if err != nil {
		result = "error"
	}
	m.total.WithLabelValues(result).Inc()
	m.seconds.Observe(took.Seconds())
}
