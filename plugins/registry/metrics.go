package registry

import "github.com/prometheus/client_golang/prometheus"

// totalPlugins has the kubelet's name and labels (pkg/kubelet/pluginmanager/metrics).
var totalPlugins = prometheus.NewDesc("plugin_manager_total_plugins",
	"Plugins by the socket of their registrar: desired_state_of_world for each socket, actual_state_of_world for those that are registered.",
	[]string{"socket_path", "state"}, nil)

// Describe implements prometheus.Collector.
func (r *Registry) Describe(ch chan<- *prometheus.Desc) { ch <- totalPlugins }

// Collect implements prometheus.Collector. It counts at each scrape.
func (r *Registry) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, s := range r.sockets {
		ch <- prometheus.MustNewConstMetric(totalPlugins, prometheus.GaugeValue, 1, path, "desired_state_of_world")
		if s.plugin != nil {
			ch <- prometheus.MustNewConstMetric(totalPlugins, prometheus.GaugeValue, 1, path, "actual_state_of_world")
		}
	}
}
