package agent

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// startMetrics measure starts of pods and containers. All of them have the kubelet's names.
type startMetrics struct {
	duration, sli, total    prometheus.Histogram
	workerDelay, containers prometheus.Histogram
	firstNetwork            prometheus.Gauge
	firstNetworkOnce        *sync.Once

	pods, podErrors       prometheus.Counter
	userns, usernsErrors  prometheus.Counter
	ctrs, containerErrors *prometheus.CounterVec
}

func newStartMetrics(f promauto.Factory) startMetrics {
	duration := func(name, help string) prometheus.Histogram {
		return f.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: startBuckets})
	}
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return startMetrics{
		duration: duration("kubelet_pod_start_duration_seconds", "Seconds from first seeing a pod in its source until all its containers were started."),
		sli: duration("kubelet_pod_start_sli_duration_seconds",
			"Seconds from a pod's creation until all its containers were started, without image pulls and init containers; pods with persistent volumes do not count."),
		total: duration("kubelet_pod_start_total_duration_seconds", "Seconds from a pod's creation until all its containers were started."),
		workerDelay: f.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_worker_start_duration_seconds",
			Help: "Seconds from first seeing a pod in its source until its worker was started.", Buckets: prometheus.DefBuckets}),
		containers: f.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_containers_per_pod_count",
			Help: "The number of containers per pod.", Buckets: prometheus.ExponentialBuckets(1, 2, 5)}),
		firstNetwork: f.NewGauge(prometheus.GaugeOpts{Name: "kubelet_first_network_pod_start_sli_duration_seconds",
			Help: "kubelet_pod_start_sli_duration_seconds of the first pod with a network of its own; 0 before that."}),
		firstNetworkOnce: new(sync.Once),
		pods:             counter("kubelet_started_pods_total", "Attempts to start a pod: to create its sandbox."),
		podErrors:        counter("kubelet_started_pods_errors_total", "Attempts to start a pod that failed."),
		userns:           counter("kubelet_started_user_namespaced_pods_total", "Attempts to start a pod with a user namespace (hostUsers: false)."),
		usernsErrors:     counter("kubelet_started_user_namespaced_pods_errors_total", "Attempts to start a pod with a user namespace that failed, first containers included."),
		ctrs: f.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_started_containers_total",
			Help: "Attempts to start a container, by kind."}, []string{"container_type"}),
		containerErrors: f.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_started_containers_errors_total",
			Help: "Attempts to start a container that failed, by kind and by the reason for which it waits."}, []string{"container_type", "code"}),
	}
}

var startBuckets = []float64{.05, .1, .15, .2, .3, .5, .75, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600, 1800}

// workerStarted observes the start of the worker of a pod that is desired.
func (m *startMetrics) workerStarted(d *pod.Desired) {
	m.containers.Observe(float64(len(d.Pod.Spec.Containers)))
	if !d.Seen.IsZero() {
		m.workerDelay.Observe(time.Since(d.Seen).Seconds())
	}
}

// containerType is the kubelet's label for a kind of containers.
func containerType(spec *v1.PodSpec, name string) string {
	switch _, kind := pod.ContainerSpec(spec, name); kind {
	case pod.InitContainer, pod.SidecarContainer:
		return "init_container"
	case pod.EphemeralContainer:
		return "ephemeral_container"
	default:
		return "container"
	}
}

// hasUserNamespace says that the pod asks for a user namespace of its own.
func hasUserNamespace(p *v1.Pod) bool { return p.Spec.HostUsers != nil && !*p.Spec.HostUsers }

// startsSandbox counts an attempt to start the pod.
func (w *worker) startsSandbox(p *v1.Pod) {
	m := &w.agent.metrics.starts
	m.pods.Inc()
	if w.starting.usernsUnproven = hasUserNamespace(p); w.starting.usernsUnproven {
		m.userns.Inc()
	}
}

// sandboxFailed counts an attempt to start the pod that has failed.
func (w *worker) sandboxFailed() {
	w.agent.metrics.starts.podErrors.Inc()
	w.usernsFailed()
}

// usernsFailed counts a failed attempt to start a pod with a user namespace, once for each
// attempt. A runtime or file system without user namespaces often fails only when the first
// container is created.
func (w *worker) usernsFailed() {
	if w.starting.usernsUnproven {
		w.starting.usernsUnproven = false
		w.agent.metrics.starts.usernsErrors.Inc()
	}
}

// containerStarts counts an attempt to start a container.
func (w *worker) containerStarts(p *v1.Pod, name string) {
	w.agent.metrics.starts.ctrs.WithLabelValues(containerType(&p.Spec, name)).Inc()
}

// containerStartFailed counts why an attempt failed.
func (w *worker) containerStartFailed(p *v1.Pod, name, reason string) {
	w.agent.metrics.starts.containerErrors.WithLabelValues(containerType(&p.Spec, name), reason).Inc()
	w.usernsFailed()
}

// imageFailed counts a container without its image as a start that failed, once for
// each new reason.
func (w *worker) imageFailed(p *v1.Pod, name string, image pod.ImageState) {
	if image.Reason == pod.ReasonContainerCreating || image.Reason == w.memory.Failures[name].Waiting.Reason {
		return
	}
	w.containerStarts(p, name)
	w.agent.metrics.starts.containerErrors.WithLabelValues(containerType(&p.Spec, name), image.Reason).Inc()
}

// countTermination counts a container that has terminated. Reasons that only the runtime knows
// share one label, because their number is unbounded.
func (w *worker) countTermination(spec *v1.PodSpec, c *pod.Container) {
	reason := c.Reason
	switch reason {
	case pod.ReasonCompleted, pod.ReasonExitError, pod.ReasonOOMKilled, pod.ReasonStartError, pod.ReasonContainerStatusUnknown:
	default:
		reason = "Other"
	}
	w.agent.metrics.terminated.WithLabelValues(containerType(spec, c.Name), strconv.Itoa(int(c.ExitCode)), reason).Inc()
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
	m, took := &w.agent.metrics.starts, now.Sub(d.Seen)
	m.duration.Observe(took.Seconds())
	total := max(now.Sub(created(d)), 0) // the apiserver's clock may be ahead
	m.total.Observe(total.Seconds())
	if !hasPersistentVolumes(&d.Pod.Spec) {
		sli := max(total-w.starting.pulling-initContainersTook(&d.Pod.Spec, seen), 0).Seconds()
		m.sli.Observe(sli)
		if !d.Pod.Spec.HostNetwork {
			m.firstNetworkOnce.Do(func() { m.firstNetwork.Set(sli) })
		}
	}
	w.log.Debug("pod started", "took", took, "pulling", w.starting.pulling)
}

// created returns when the apiserver created a pod, or when podd first saw it in another source.
func created(d *pod.Desired) time.Time {
	if at := d.Pod.CreationTimestamp; d.Source == pod.SourceAPIServer && !at.IsZero() {
		return at.Time
	}
	return d.Seen
}

// hasPersistentVolumes says that the pod has a volume whose content may be older than the pod.
// The SLO of pod starts leaves such pods out.
func hasPersistentVolumes(spec *v1.PodSpec) bool {
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil {
			return true
		}
	}
	return false
}

// initContainersTook is how long the pod's init containers ran, without sidecars.
func initContainersTook(spec *v1.PodSpec, seen pod.Observed) (took time.Duration) {
	for i := range spec.InitContainers {
		if pod.IsSidecar(&spec.InitContainers[i]) {
			continue
		}
		if c := seen.LatestContainer(spec.InitContainers[i].Name); c != nil && c.FinishedAt.After(c.StartedAt) {
			took += c.FinishedAt.Sub(c.StartedAt)
		}
	}
	return took
}
