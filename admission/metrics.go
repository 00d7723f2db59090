package admission

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct{ rejections *prometheus.CounterVec }

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{rejections: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_admission_rejections_total",
		Help: "Pods that were rejected on this node, by reason; an extended resource counts as OutOfExtendedResources.",
	}, []string{"reason"})}
}

// rejected counts a rejection. Of the resources that are short, it names only the four that
// every node has: users name the others, or they are many, so a label for each would have
// no bound.
func (m *metrics) rejected(reason string) {
	if name, ok := strings.CutPrefix(reason, reasonInsufficient); ok {
		switch v1.ResourceName(name) {
		case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods:
		default:
			reason = reasonInsufficient + "ExtendedResources"
		}
	}
	m.rejections.WithLabelValues(reason).Inc()
}
