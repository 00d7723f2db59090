package admission

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	helper "k8s.io/component-helpers/resource"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"podd/internal/pod"
)

type metrics struct{ rejections, admitted, infeasible *prometheus.CounterVec }

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		rejections: f.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_admission_rejections_total",
			Help: "Pods that were rejected on this node, by reason; an extended resource counts as OutOfExtendedResources.",
		}, []string{"reason"}),
		admitted: f.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_level_resources_admission_total",
			Help: "Pods that were admitted on this node, by where their resources are (pod_level, container_level, pod_and_container_level, or empty for neither) and by QoS class.",
		}, []string{"config_mode", "qos_class"}),
		infeasible: f.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_infeasible_resizes_total",
			Help: "Number of infeasible resizes for pods.",
		}, []string{"reason_detail"}),
	}
}

// admits counts an admission (KEP-2837).
func (m *metrics) admits(p *v1.Pod) {
	m.admitted.WithLabelValues(configMode(p), strings.ToLower(string(pod.QOSClass(p)))).Inc()
}

// configMode says where a pod has requests or limits: the kubelet's label.
func configMode(p *v1.Pod) string {
	has := func(list []v1.Container) bool {
		return slices.ContainsFunc(list, func(c v1.Container) bool { return len(c.Resources.Requests)+len(c.Resources.Limits) > 0 })
	}
	containers := has(p.Spec.Containers) || has(p.Spec.InitContainers)
	switch podLevel := helper.IsPodLevelResourcesSet(p); {
	case podLevel && containers:
		return "pod_and_container_level"
	case podLevel:
		return "pod_level"
	case containers:
		return "container_level"
	}
	return ""
}

// rejected counts a rejection.
func (m *metrics) rejected(reason string) {
	if name, ok := strings.CutPrefix(reason, reasonInsufficient); ok {
		reason = reasonInsufficient + resourceLabel(v1.ResourceName(name))
	}
	m.rejections.WithLabelValues(reason).Inc()
}

// resourceLabel is a resource as a label: only the four that every node has have their
// names. Users name the others, or they are many, so a label for each would have no bound.
func resourceLabel(name v1.ResourceName) string {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods:
		return string(name)
	}
	return "ExtendedResources"
}
