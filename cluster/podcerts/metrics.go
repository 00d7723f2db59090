package podcerts

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// states is the kubelet's metric (pkg/kubelet/metrics/collectors). A series disappears with the
// last pod that it counts.
var states = prometheus.NewDesc("kubelet_podcertificate_states",
	"Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.",
	[]string{"signer_name", "state"}, nil)

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) { ch <- states }

// Collect implements prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	now, n := time.Now(), map[[2]string]int{}
	m.mu.Lock()
	for _, of := range m.creds {
		for _, c := range of {
			n[[2]string{strings.ToValidUTF8(c.source.SignerName, "\uFFFD"), c.stateLocked(now)}]++
		}
	}
	m.mu.Unlock()
	for labels, count := range n {
		ch <- prometheus.MustNewConstMetric(states, prometheus.GaugeValue, float64(count), labels[0], labels[1])
	}
}
