package admission

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct{ rejections, infeasible *prometheus.CounterVec }

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		rejections: f.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_admission_rejections_total",
			Help: "Pods that were rejected on this node, by reason; an extended resource counts as OutOfExtendedResources.",
		}, []string{"reason"}),
		infeasible: f.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_infeasible_resizes_total",
			Help: "Number of infeasible resizes for pods.",
		}, []string{"reason_detail"}),
	}
}

// rejected counts a rejection.
func (m *metrics) rejected(reason string) {
	if name, ok := strings.CutPrefix(reason, reasonInsufficient); ok {
		reason = reasonInsufficient + resourceLabel(v1.ResourceName(name))
	}
	m.rejections.WithLabelValues(reason).Inc()
}

// resourceLabel returns the label for a resource. Only the four resources that every node has
// get their own. Users choose the names of the others, so one label each would be unbounded.
func resourceLabel(name v1.ResourceName) string {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods:
		return string(name)
	}
	return "ExtendedResources"
}
