package nodeshutdown

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// state is when the last shutdown began and ended; zero for never.
type state struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

// metrics are the kubelet's. They show the shutdown before this boot.
type metrics struct{ start, end prometheus.Gauge }

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		start: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_graceful_shutdown_start_time_seconds", Help: "When the last graceful shutdown of the node began, in seconds since 1970."}),
		end:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_graceful_shutdown_end_time_seconds", Help: "When the last graceful shutdown of the node ended, in seconds since 1970."}),
	}
	if reg != nil {
		reg.MustRegister(m.start, m.end)
	}
	return m
}

func (m metrics) set(s state) {
	m.start.Set(seconds(s.StartTime))
	m.end.Set(seconds(s.EndTime))
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
