package pleg

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the kubelet's names where it has such a thing.
type metrics struct {
	duration prometheus.Histogram
	interval prometheus.Histogram
	lastSeen prometheus.Gauge
	events   *prometheus.CounterVec
	restarts prometheus.Counter
	// These are about the event stream, and also have the kubelet's names.
	streams, streamErrors prometheus.Counter
	latency               prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pleg_relist_duration_seconds", Help: "Duration in seconds for relisting pods.",
			Buckets: prometheus.DefBuckets,
		}),
		interval: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pleg_relist_interval_seconds", Help: "Interval in seconds between relisting.",
			Buckets: []float64{.1, .5, 1, 2, 5, 10, 30, 60, 120, 180, 240, 300, 360, 600},
		}),
		lastSeen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_pleg_last_seen_seconds", Help: "Timestamp in seconds when the runtime was last in contact.",
		}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podd_pleg_events_total",
			Help: "Hints about pods by type: stream (an event of the runtime), unknown (an event without a pod), relist (a change that a relist found).",
		}, []string{"type"}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "podd_pleg_stream_restarts_total", Help: "Times the runtime's event stream was lost.",
		}),
		streams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_evented_pleg_connection_success_count", Help: "Times podd requested the runtime's event stream.",
		}),
		streamErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_evented_pleg_connection_error_count", Help: "Times the runtime refused the event stream or podd lost it.",
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_evented_pleg_connection_latency_seconds", Help: "Seconds from an event in the runtime until podd read it.",
			Buckets: prometheus.DefBuckets,
		}),
	}
	if reg != nil {
		reg.MustRegister(m.duration, m.interval, m.lastSeen, m.events, m.restarts, m.streams, m.streamErrors, m.latency)
	}
	return m
}

func (m *metrics) relisted(start, previous time.Time) {
	m.duration.Observe(time.Since(start).Seconds())
	if !previous.IsZero() {
		m.interval.Observe(start.Sub(previous).Seconds())
	}
}
