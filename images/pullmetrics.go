package images

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

type pullMetrics struct {
	duration *prometheus.HistogramVec
	pulls    *prometheus.CounterVec
	failures *prometheus.CounterVec
	ensured  *prometheus.CounterVec
	running  prometheus.Gauge
	waiting  prometheus.Gauge
}

func newPullMetrics(reg prometheus.Registerer) *pullMetrics {
	m := &pullMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_image_pull_duration_seconds",
			Help:    "Duration in seconds to pull an image, waiting included, by image size.",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
		pulls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podd_image_pulls_total",
			Help: "Image pulls that ended, by result: ok, error, cancelled.",
		}, []string{"result"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podd_image_pull_failures_total",
			Help: "Image pulls that failed, by cause.",
		}, []string{"cause"}),
		ensured: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_manager_ensure_image_requests_total",
			Help: "Number of ensure-image requests processed by the kubelet.",
		}, []string{"pull_policy", "present_locally", "pull_required"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "podd_image_pulls_running", Help: "Image pulls under way.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "podd_image_pulls_waiting", Help: "Image pulls that wait for a slot or for the rate limit.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.duration, m.pulls, m.failures, m.ensured, m.running, m.waiting)
	}
	return m
}

// countRequest counts a request for an image; present and pull are true, false or
// unknown, as in the kubelet.
func (m *pullMetrics) countRequest(policy v1.PullPolicy, present, pull string) {
	m.ensured.WithLabelValues(strings.ToLower(string(policy)), present, pull).Inc()
}

func (m *pullMetrics) observeResult(took time.Duration, size uint64, err error, why cause) {
	switch {
	case err == nil:
		m.pulls.WithLabelValues("ok").Inc()
		m.duration.WithLabelValues(sizeBucket(size)).Observe(took.Seconds())
	case errors.Is(err, context.Canceled):
		m.pulls.WithLabelValues("cancelled").Inc()
	default:
		m.pulls.WithLabelValues("error").Inc()
		m.failures.WithLabelValues(string(why)).Inc()
	}
}

// sizeBucket returns the kubelet's label for an image's size.
func sizeBucket(size uint64) string {
	const mb, gb = 1 << 20, 1 << 30
	for _, b := range []struct {
		above uint64
		label string
	}{
		{100 * gb, "GT100GB"}, {60 * gb, "60GB-100GB"}, {40 * gb, "40GB-60GB"}, {30 * gb, "30GB-40GB"},
		{20 * gb, "20GB-30GB"}, {10 * gb, "10GB-20GB"}, {5 * gb, "5GB-10GB"}, {gb, "1GB-5GB"},
		{500 * mb, "500MB-1GB"}, {100 * mb, "100MB-500MB"}, {10 * mb, "10MB-100MB"}, {0, "0-10MB"},
	} {
		if size > b.above {
			return b.label
		}
	}
	return "N/A"
}
