package cri

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the kubelet's own names, so that its dashboards and alerts work.
type metrics struct {
	total              *prometheus.CounterVec
	errors             *prometheus.CounterVec
	duration           *prometheus.HistogramVec
	events             *prometheus.CounterVec
	statusLookups      *prometheus.CounterVec
	sandboxRunDuration *prometheus.HistogramVec
	sandboxRunErrors   *prometheus.CounterVec
	replaced           prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	op := []string{"operation_type"}
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total",
			Help: "Calls to the container runtime by operation type.",
		}, op),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total",
			Help: "Calls to the container runtime that ended in an error, by operation type.",
		}, op),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_runtime_operations_duration_seconds",
			Help:    "Duration in seconds of calls to the container runtime by operation type.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, op),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podd_runtime_events_total",
			Help: "Events read from the container runtime's stream, by type.",
		}, []string{"type"}),
		sandboxRunDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_run_podsandbox_duration_seconds",
			Help:    "Duration in seconds of the run_podsandbox operations, by RuntimeClass handler.",
			Buckets: prometheus.DefBuckets,
		}, []string{"runtime_handler"}),
		sandboxRunErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_run_podsandbox_errors_total",
			Help: "Run_podsandbox operations that failed, by RuntimeClass handler.",
		}, []string{"runtime_handler"}),
		replaced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "podd_runtime_connections_replaced_total",
			Help: "Connections to the container runtime that were replaced because nothing moved on them while the runtime answered on a new one.",
		}),
		statusLookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podd_runtime_status_lookups_total",
			Help: "Statuses needed to observe pods, by where they came from: call, or memo of facts that cannot change.",
		}, []string{"from"}),
	}
	reg.MustRegister(m.total, m.errors, m.duration, m.events, m.statusLookups, m.sandboxRunDuration, m.sandboxRunErrors, m.replaced)
	return m
}

func (m *metrics) observe(operation string, took time.Duration, err error) {
	m.total.WithLabelValues(operation).Inc()
	m.duration.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(operation).Inc()
	}
}

func (m *metrics) sandboxRun(handler string, took time.Duration, err error) {
	m.sandboxRunDuration.WithLabelValues(handler).Observe(took.Seconds())
	if err != nil {
		m.sandboxRunErrors.WithLabelValues(handler).Inc()
	}
}

// operationTypes maps a CRI method to the operation_type that the kubelet
// gives it (pkg/kubelet/kuberuntime/instrumented_services.go).
var operationTypes = map[string]string{
	"Version":                   "version",
	"Status":                    "status",
	"RuntimeConfig":             "runtime_config",
	"RunPodSandbox":             "run_podsandbox",
	"StopPodSandbox":            "stop_podsandbox",
	"RemovePodSandbox":          "remove_podsandbox",
	"PodSandboxStatus":          "podsandbox_status",
	"ListPodSandbox":            "list_podsandbox",
	"CreateContainer":           "create_container",
	"StartContainer":            "start_container",
	"StopContainer":             "stop_container",
	"RemoveContainer":           "remove_container",
	"CheckpointContainer":       "checkpoint_container",
	"ExecSync":                  "exec_sync",
	"Exec":                      "exec",
	"Attach":                    "attach",
	"PortForward":               "port_forward",
	"ReopenContainerLog":        "reopen_container_log",
	"UpdateContainerResources":  "update_container",
	"UpdatePodSandboxResources": "update_podsandbox_resources",
	"ListContainers":            "list_containers",
	"ContainerStatus":           "container_status",
	"ContainerStats":            "container_stats",
	"GetContainerEvents":        "get_container_events",
	"ImageStatus":               "image_status",
	"PullImage":                 "pull_image",
	"ListImages":                "list_images",
	"RemoveImage":               "remove_image",
	"ImageFsInfo":               "image_fs_info",
}
