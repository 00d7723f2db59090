package volumes

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics has upstream's names where upstream has the metric.
type metrics struct {
	operations *prometheus.HistogramVec
}

// counts is what the gauges show, computed at each scrape.
type counts struct {
	volumes map[string]int // by plugin
	pending int
}

func newMetrics(reg prometheus.Registerer, now func() counts) *metrics {
	m := &metrics{
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "storage_operation_duration_seconds",
			Help:    "Storage operation duration",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, []string{"volume_plugin", "operation_name", "status", "migrated"}),
	}
	if reg != nil {
		reg.MustRegister(m.operations, &gauges{now: now})
	}
	return m
}

func (m *metrics) observe(plugin, operation string, start time.Time, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.operations.WithLabelValues(plugin, operation, status, "false").Observe(time.Since(start).Seconds())
}

var (
	totalVolumes = prometheus.NewDesc("volume_manager_total_volumes",
		"Number of volumes in Volume Manager", []string{"plugin_name", "state"}, nil)
	totalPendingUnmounts = prometheus.NewDesc("podd_volume_debts",
		"Pod directories that could not be removed yet, because something is still mounted or in use in them.", nil, nil)
)

// gauges computes its values at each scrape.
type gauges struct{ now func() counts }

func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	out <- totalVolumes
	out <- totalPendingUnmounts
}

func (g *gauges) Collect(out chan<- prometheus.Metric) {
	c := g.now()
	for plugin, n := range c.volumes {
		out <- prometheus.MustNewConstMetric(totalVolumes, prometheus.GaugeValue, float64(n), plugin, "actual_state_of_world")
	}
	out <- prometheus.MustNewConstMetric(totalPendingUnmounts, prometheus.GaugeValue, float64(c.pending))
}

func (m *Mounter) counts() counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := counts{volumes: map[string]int{}, pending: len(m.pending)}
	for _, volumes := range m.ready {
		for _, plugin := range volumes {
			c.volumes[plugin]++
		}
	}
	return c
}
