package agent

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"podd/agent/allocation"
	"podd/internal/pod"
)

// How the wait of a deferred resize ends: the label resolution of
// kubelet_pod_deferred_resize_duration_seconds.
const (
	resizeAccepted   = "accepted"
	resizeReverted   = "reverted"
	resizeTerminated = "terminated"
)

// Why a deferred resize is decided again: the label retry_trigger of
// kubelet_pod_deferred_accepted_resizes_total.
const (
	triggerPodResized    = "pod_resized"
	triggerPodUpdated    = "pod_updated"
	triggerPodsAdded     = "pods_added"
	triggerPodsRemoved   = "pods_removed"
	triggerPodTerminated = "pod_terminated"
	triggerPeriodic      = "periodic_retry"
)

// resizeMetrics are about resizes of running pods, and about pod-level resources. Names, labels
// and buckets are the kubelet's.
type resizeMetrics struct {
	requested        *prometheus.CounterVec
	duration         *prometheus.HistogramVec
	pending          *prometheus.GaugeVec
	inProgress       prometheus.Gauge
	deferredAccepted *prometheus.CounterVec
	deferredDuration *prometheus.HistogramVec
	admissions       *prometheus.CounterVec
}

const priorityBuckets = "Label 'priority_bucket' classifies the pod priority (system-critical: >=2000000000, high: 100000..1999999999, " +
	"medium: 1..99999, normal: 0/default, low: -999..-1, very-low: <=-1000)."

func newResizeMetrics(f promauto.Factory) resizeMetrics {
	return resizeMetrics{
		requested: f.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_container_requested_resizes_total",
			Help: "Number of requested resizes, counted at the container level. Different resources on the same container are counted separately. " +
				"The 'requirement' label is 'requests' or 'limits'; the 'operation' label can be one of 'add', 'remove', 'increase' or 'decrease'.",
		}, []string{"resource", "requirement", "operation"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_resize_duration_milliseconds",
			Help:    "Duration in milliseconds to actuate a pod resize",
			Buckets: []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}}, []string{"success"}),
		pending: f.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_pod_pending_resizes",
			Help: "Number of pending resizes for pods. " + priorityBuckets + " Label 'reason' describes the state (deferred, infeasible)."},
			[]string{"reason", "priority_bucket"}),
		inProgress: f.NewGauge(prometheus.GaugeOpts{Name: "kubelet_pod_in_progress_resizes",
			Help: "Number of in-progress resizes for pods."}),
		deferredAccepted: f.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_pod_deferred_accepted_resizes_total",
			Help: "Cumulative number of resizes that were accepted after being deferred."}, []string{"retry_trigger"}),
		deferredDuration: f.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_deferred_resize_duration_seconds",
			Help: "Duration in seconds that a pod resize remains deferred before completion. " + priorityBuckets +
				" Label 'resolution' describes how the deferred resize was resolved (accepted, reverted, terminated).",
			Buckets: []float64{5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600}}, []string{"resolution", "priority_bucket"}),
		admissions: f.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_pod_level_resources_admission_total",
			Help: "Total number of pods admitted during Kubelet admission, categorized by resource configuration mode " +
				"(pod_and_container_level, pod_level, container_level, or empty for unconfigured/BestEffort) and QoS class."},
			[]string{"config_mode", "qos_class"}),
	}
}

// admitted counts an admitted pod by where it names resources.
func (m *resizeMetrics) admitted(p *v1.Pod) {
	mode := ""
	for c, k := range pod.ContainerSpecs(&p.Spec) {
		if k != pod.EphemeralContainer && len(c.Resources.Requests)+len(c.Resources.Limits) > 0 {
			mode = "container_level"
		}
	}
	switch {
	case !helper.IsPodLevelResourcesSet(p):
	case mode != "":
		mode = "pod_and_container_level"
	default:
		mode = "pod_level"
	}
	m.admissions.WithLabelValues(mode, strings.ToLower(string(pod.QOSClass(p)))).Inc()
}

// updated counts the resources that a pod's source has changed, for each container.
func (m *resizeMetrics) updated(before, now *v1.Pod) {
	for c, k := range pod.ContainerSpecs(&now.Spec) {
		old, kind := pod.ContainerSpec(&before.Spec, c.Name)
		if old == nil || kind != k || !k.Resizable() {
			continue
		}
		for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
			m.requestedResize(name, "requests", old.Resources.Requests[name], c.Resources.Requests[name])
			m.requestedResize(name, "limits", old.Resources.Limits[name], c.Resources.Limits[name])
		}
	}
}

func (m *resizeMetrics) requestedResize(name v1.ResourceName, requirement string, before, now resource.Quantity) {
	operation := ""
	switch order := now.Cmp(before); {
	case order == 0:
		return
	case now.IsZero():
		operation = "remove"
	case before.IsZero():
		operation = "add"
	case order < 0:
		operation = "decrease"
	default:
		operation = "increase"
	}
	m.requested.WithLabelValues(string(name), requirement, operation).Inc()
}

// carriedOut observes an attempt to carry out a resize. began is when the attempt began.
func (m *resizeMetrics) carriedOut(success bool, began time.Time) {
	m.duration.WithLabelValues(strconv.FormatBool(success)).Observe(float64(time.Since(began).Milliseconds()))
}

// allocated updates the gauges when a pod's allocation changes from before to next. resolution
// says how the wait of a deferred resize ends, if it does.
func (m *resizeMetrics) allocated(before, next allocation.Allocation, resolution string, now time.Time) {
	if before.Pending == next.Pending && before.Progress == next.Progress {
		return
	}
	m.inProgress.Add(toFloat(next.Progress != nil) - toFloat(before.Progress != nil))
	if b := before.Pending; b != nil {
		bucket := priorityBucket(before.Granted.Pod)
		m.pending.WithLabelValues(strings.ToLower(b.Reason), bucket).Dec()
		if next.Pending == nil && b.Reason == v1.PodReasonDeferred {
			m.deferredDuration.WithLabelValues(resolution, bucket).Observe(now.Sub(b.LastTransitionTime.Time).Seconds())
		}
	}
	if p := next.Pending; p != nil {
		m.pending.WithLabelValues(strings.ToLower(p.Reason), priorityBucket(next.Granted.Pod)).Inc()
	}
}

// priorityBucket is the label of a pod's priority (upstream's GetPriorityBucketLabel).
func priorityBucket(p *v1.Pod) string {
	const systemCritical, high, low = 2_000_000_000, 100_000, -1000
	priority := int32(0)
	if p.Spec.Priority != nil {
		priority = *p.Spec.Priority
	}
	switch {
	case priority >= systemCritical:
		return "system-critical"
	case priority >= high:
		return "high"
	case priority > 0:
		return "medium"
	case priority == 0:
		return "normal"
	case priority > low:
		return "low"
	default:
		return "very-low"
	}
}
