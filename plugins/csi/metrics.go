package csi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
)

// metrics has upstream's metric.
type metrics struct{ operations *prometheus.HistogramVec }

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "csi_operations_seconds",
		Help:    "Container Storage Interface operation duration with gRPC error code status total",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})}
	if reg != nil {
		reg.MustRegister(m.operations)
	}
	return m
}

func (m *metrics) observe(driver, method string, started time.Time, err error) {
	m.operations.WithLabelValues(driver, "/csi.v1.Node/"+method, status.Code(err).String(), "false").Observe(time.Since(started).Seconds())
}
