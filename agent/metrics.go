package agent

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"podd/internal/pod"
)

// metrics have the kubelet's names if the kubelet has them
// (pkg/kubelet/metrics/metrics.go), and podd_ otherwise.
type metrics struct {
	desired           prometheus.Gauge
	runningPods       prometheus.Gauge
	runningContainers *prometheus.GaugeVec
	syncs             *prometheus.HistogramVec
	startDuration     prometheus.Histogram
	startSLI          prometheus.Histogram
	started           prometheus.Counter
	startedErrors     *prometheus.CounterVec
	syncErrors        prometheus.Counter
	imageVolumes      imageVolumeMetrics
	evictions         *prometheus.CounterVec
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
		desired: f.NewGauge(prometheus.GaugeOpts{Name: "kubelet_desired_pods",
			Help: "Pods that the sources want on this node."}),
		runningPods: f.NewGauge(prometheus.GaugeOpts{Name: "kubelet_running_pods",
			Help: "Pods that have a running pod sandbox."}),
		runningContainers: f.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_running_containers",
			Help: "Containers by the state that the runtime reports."}, []string{"container_state"}),
		syncs: f.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_worker_duration_seconds",
			Help: "Duration in seconds of one sync of a pod, by operation: create, sync, update, terminate or cleanup.",
			// A sync without changes reads the runtime's state, in a few
			// milliseconds.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, []string{"operation_type"}),
		startDuration: f.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_duration_seconds",
			Help: "Seconds from first seeing a pod in its source until all its containers were started.", Buckets: startBuckets}),
		startSLI: f.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_sli_duration_seconds",
			Help: "Seconds to start a pod, image pulls excluded.", Buckets: startBuckets}),
		started: f.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_containers_total",
			Help: "Containers started."}),
		startedErrors: f.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_started_containers_errors_total",
			Help: "Containers that could not be started, by reason."}, []string{"code"}),
		syncErrors: f.NewCounter(prometheus.CounterOpts{Name: "podd_pod_sync_errors_total",
			Help: "Syncs of pods that ended in an error and are retried."}),
		imageVolumes: newImageVolumeMetrics(f),
		evictions: f.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_evictions",
			Help: "Cumulative number of pod evictions by eviction signal"}, []string{"eviction_signal"}),
	}
}

var startBuckets = []float64{.05, .1, .15, .2, .3, .5, .75, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600, 1800}

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

// measureStart observes the duration of a pod's start once, at the first sync that
// finds all its containers started, if this podd started it.
func (w *worker) measureStart(d *pod.Desired, seen pod.Observed, now time.Time) {
	if w.reported.running || !w.starting.sandboxCreated || d.Seen.IsZero() {
		return
	}
	for i := range d.Pod.Spec.Containers {
		c := seen.LatestContainer(d.Pod.Spec.Containers[i].Name)
		if c == nil || c.StartedAt.IsZero() {
			return
		}
	}
	w.reported.running = true
	took := now.Sub(d.Seen)
	w.agent.metrics.startDuration.Observe(took.Seconds())
	w.agent.metrics.startSLI.Observe((took - w.starting.pulling).Seconds())
	w.log.Debug("pod started", "took", took, "pulling", w.starting.pulling)
}
