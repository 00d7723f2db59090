package agent

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"podd/internal/pod"
)

// metrics have the kubelet's names if the kubelet has them
// (pkg/kubelet/metrics/metrics.go), and podd_ otherwise.
type metrics struct {
	desired           *prometheus.GaugeVec
	runningPods       prometheus.Gauge
	runningContainers *prometheus.GaugeVec
	syncs             *prometheus.HistogramVec
	syncErrors        prometheus.Counter
	imageVolumes      imageVolumeMetrics
	resizes           resizeMetrics
	evictions         *prometheus.CounterVec
	preemptions       *prometheus.CounterVec
	orphaned          prometheus.Counter
	restarted         *prometheus.CounterVec
	terminated        *prometheus.CounterVec
	// cleanedOrphans and keptOrphans are about the last sweep.
	cleanedOrphans, keptOrphans prometheus.Gauge
	starts                      startMetrics
}

// imageVolumeMetrics count image volumes of containers to be made, and what the
// runtime made of their mounts.
type imageVolumeMetrics struct{ requested, mounted, failed prometheus.Counter }

func newImageVolumeMetrics(f promauto.Factory) imageVolumeMetrics {
	return imageVolumeMetrics{
		requested: f.NewCounter(prometheus.CounterOpts{Name: "kubelet_image_volume_requested_total",
			Help: "Number of requested image volumes."}),
		mounted: f.NewCounter(prometheus.CounterOpts{Name: "kubelet_image_volume_mounted_succeed_total",
			Help: "Number of successful image volume mounts."}),
		failed: f.NewCounter(prometheus.CounterOpts{Name: "kubelet_image_volume_mounted_errors_total",
			Help: "Number of failed image volume mounts."}),
	}
}

// observe counts what came of a container's request.
func (m imageVolumeMetrics) observe(req pod.ContainerRequest, err error) {
	m.requested.Add(float64(len(req.Image.Volumes)))
	for i := range req.Mounts {
		switch {
		case req.Mounts[i].Image.Volume == "":
		case errors.Is(err, pod.ErrImageVolume):
			m.failed.Inc()
		default:
			m.mounted.Inc()
		}
	}
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		desired: f.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_desired_pods",
			Help: "Pods that the sources want on this node. static is true if the pod is not from the apiserver."}, []string{"static"}),
		runningPods: f.NewGauge(prometheus.GaugeOpts{Name: "kubelet_running_pods",
			Help: "Pods that have a running pod sandbox."}),
		runningContainers: f.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_running_containers",
			Help: "Containers by the state that the runtime reports."}, []string{"container_state"}),
		syncs: f.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_worker_duration_seconds",
			Help: "Duration in seconds of one sync of a pod, by operation: create, sync, update, terminate or cleanup.",
			// A sync without changes reads the runtime's state, in a few
			// milliseconds.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, []string{"operation_type"}),
		syncErrors: f.NewCounter(prometheus.CounterOpts{Name: "podd_pod_sync_errors_total",
			Help: "Syncs of pods that ended in an error and are retried."}),
		imageVolumes: newImageVolumeMetrics(f),
		resizes:      newResizeMetrics(f),
		evictions: f.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_evictions",
			Help: "Cumulative number of pod evictions by eviction signal"}, []string{"eviction_signal"}),
		preemptions: f.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_preemptions",
			Help: "Pods that were terminated to admit a critical pod, by the first resource that the critical pod lacked."}, []string{"preemption_signal"}),
		orphaned: f.NewCounter(prometheus.CounterOpts{Name: "kubelet_orphaned_runtime_pods_total",
			Help: "Pods found in the runtime that no source wanted and that had no worker."}),
		restarted: f.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_restarted_pods_total",
			Help: "Pods that were removed and came back with the same UID before they had ended. static is true if the pod is not from the apiserver."},
			[]string{"static"}),
		terminated: f.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_terminated_containers_total",
			Help: "Containers that have terminated, by kind, exit code and reason."}, []string{"container_type", "exit_code", "reason"}),
		cleanedOrphans: f.NewGauge(prometheus.GaugeOpts{Name: "kubelet_orphan_pod_cleaned_volumes",
			Help: "Pods that existed only on disk at the last sweep. podd removes their volumes."}),
		keptOrphans: f.NewGauge(prometheus.GaugeOpts{Name: "kubelet_orphan_pod_cleaned_volumes_errors",
			Help: "Pods that existed only on disk at the last sweep, and still have processes. podd keeps their volumes."}),
		starts: newStartMetrics(f),
	}
}

// operation classifies a sync for the histogram; a closed set.
func operation(in mail, phase pod.Phase) string {
	switch {
	case phase >= pod.PhaseTerminated:
		return "cleanup"
	case in.Kill != nil:
		return "terminate"
	case phase == pod.PhasePending:
		return "create"
	default:
		return "sync"
	}
}

// gaugeValues is what a worker contributes to the gauges.
type gaugeValues struct {
	sandbox    bool
	containers map[pod.ContainerState]int
}

// updateGauges updates the gauges with what the worker observes.
func (w *worker) updateGauges(seen pod.Observed) {
	m := w.agent.metrics
	now := gaugeValues{containers: make(map[pod.ContainerState]int, 4)}
	for i := range seen.Sandboxes {
		now.sandbox = now.sandbox || seen.Sandboxes[i].Ready
	}
	for i := range seen.Containers {
		now.containers[seen.Containers[i].State]++
	}
	m.runningPods.Add(toFloat(now.sandbox) - toFloat(w.gauges.sandbox))
	for _, s := range []pod.ContainerState{pod.ContainerCreated, pod.ContainerRunning, pod.ContainerExited, pod.ContainerUnknown} {
		if diff := now.containers[s] - w.gauges.containers[s]; diff != 0 {
			m.runningContainers.WithLabelValues(s.String()).Add(float64(diff))
		}
	}
	w.gauges = now
}

func toFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
