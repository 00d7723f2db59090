package volumes

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podd/internal/pod"
)

// metrics has upstream's names where upstream has the metric.
type metrics struct {
	operations *prometheus.HistogramVec
}

// counts are the values of the gauges, computed at each scrape.
type counts struct {
	// volumes counts the volumes that are set up, desired those that pods should have, by
	// plugin.
	volumes, desired map[string]int
	pending          int
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
		reg.MustRegister(m.operations, &gauges{counts: now})
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
type gauges struct{ counts func() counts }

func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	out <- totalVolumes
	out <- totalPendingUnmounts
}

func (g *gauges) Collect(out chan<- prometheus.Metric) {
	c := g.counts()
	for state, volumes := range map[string]map[string]int{"actual_state_of_world": c.volumes, "desired_state_of_world": c.desired} {
		for plugin, n := range volumes {
			out <- prometheus.MustNewConstMetric(totalVolumes, prometheus.GaugeValue, float64(n), plugin, state)
		}
	}
	out <- prometheus.MustNewConstMetric(totalPendingUnmounts, prometheus.GaugeValue, float64(c.pending))
}

func (m *Mounter) counts() counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := counts{volumes: map[string]int{}, desired: map[string]int{}}
	for _, known := range m.pods {
		for _, plugin := range known.ready {
			c.volumes[plugin]++
		}
		if known.pending != nil {
			c.pending++
		}
		if known.pod != nil && !known.released && !known.terminating && known.pending == nil {
			m.countDesired(&c, known)
		}
	}
	return c
}

// countDesired counts the volumes that the pod's containers use.
func (m *Mounter) countDesired(c *counts, known *podVolumes) {
	used := pod.UsedVolumes(known.pod)
	for i := range known.pod.Spec.Volumes {
		v := &known.pod.Spec.Volumes[i]
		if !used[v.Name] {
			continue
		}
		plugin, ready := known.ready[v.Name]
		if k := m.kindOf(v); !ready && k != nil {
			plugin = k.plugin
		}
		if plugin != "" { // a claim's is known once the claim is bound
			c.desired[plugin]++
		}
	}
}
