package registry

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// maxSeries bounds the sockets that have series of their own. Whoever may write to the
// directory chooses their number.
const maxSeries = 100

// totalPlugins has the kubelet's name and labels (pkg/kubelet/pluginmanager/metrics).
var totalPlugins = prometheus.NewDesc("plugin_manager_total_plugins",
	"Plugins by the socket of their registrar. state is desired_state_of_world for each socket, and also actual_state_of_world for each registered plugin.",
	[]string{"socket_path", "state"}, nil)

// Describe implements prometheus.Collector.
func (r *Registry) Describe(ch chan<- *prometheus.Desc) { ch <- totalPlugins }

// Collect implements prometheus.Collector. It counts at each scrape. The names of files are
// those of plugins, which may be no UTF-8: a label must be.
func (r *Registry) Collect(ch chan<- prometheus.Metric) {
	type series struct{ path, state string }
	counts := map[series]float64{}
	r.mu.Lock()
	for _, path := range slices.Sorted(maps.Keys(r.sockets)) { // the same ones have series each time
		s, label := r.sockets[path], strings.ToValidUTF8(path, "\uFFFD")
		if len(counts) >= maxSeries {
			label = "other"
		}
		counts[series{label, "desired_state_of_world"}]++
		if s.plugin != nil {
			counts[series{label, "actual_state_of_world"}]++
		}
	}
	r.mu.Unlock()
	for s, n := range counts {
		ch <- prometheus.MustNewConstMetric(totalPlugins, prometheus.GaugeValue, n, s.path, s.state)
	}
}
