package csi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
)

// metrics has upstream's metrics.
type metrics struct {
	operations *prometheus.HistogramVec
	selinux    selinuxMetrics // only on a node with SELinux
}

// selinuxMetrics are gauges, as upstream's are, although they only grow.
type selinuxMetrics struct{ containerErrors, podErrors, volumeErrors, admitted *prometheus.GaugeVec }

func newSELinuxMetrics(reg prometheus.Registerer) selinuxMetrics {
	gauge := func(name, help string, labels []string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "volume_manager_selinux_" + name, Help: help}, labels)
		if reg != nil {
			reg.MustRegister(g)
		}
		return g
	}
	return selinuxMetrics{
		containerErrors: gauge("container_errors_total", "Attempts to mount a volume for a pod whose seLinuxOptions make no SELinux label.", []string{"access_mode"}),
		podErrors:       gauge("pod_context_mismatch_errors_total", "Attempts to mount a volume for a pod whose containers use it with different SELinux labels.", []string{"access_mode"}),
		volumeErrors:    gauge("volume_context_mismatch_errors_total", "Attempts to mount a volume that another pod uses with another SELinux label.", []string{"volume_plugin", "access_mode"}),
		admitted:        gauge("volumes_admitted_total", "Volumes mounted with an SELinux label.", []string{"volume_plugin", "access_mode"}),
	}
}

func newMetrics(reg prometheus.Registerer, withSELinux bool) *metrics {
	m := &metrics{operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "csi_operations_seconds",
		Help:    "Container Storage Interface operation duration with gRPC error code status total",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})}
	if reg != nil {
		reg.MustRegister(m.operations)
	}
	if withSELinux {
		m.selinux = newSELinuxMetrics(reg)
	}
	return m
}

func (m *metrics) observe(driver, method string, started time.Time, err error) {
	m.operations.WithLabelValues(driver, "/csi.v1.Node/"+method, status.Code(err).String(), "false").Observe(time.Since(started).Seconds())
}
