package dra

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	resourcev1 "k8s.io/api/resource/v1"
)

// metrics are the kubelet's. Their label for drivers is bounded by maxDrivers.
type metrics struct {
	operations, calls            *prometheus.HistogramVec
	prepareSkips, unprepareSkips *prometheus.CounterVec

	mu     sync.Mutex      // guards spared
	spared map[string]bool // the drivers with skipped calls
}

// anyDriver stands for all drivers together.
const anyDriver = "<any>"

var inUseDesc = prometheus.NewDesc("dra_resource_claims_in_use",
	"ResourceClaims that are prepared, by driver and, as <any>, in all: one may have devices of several drivers.", []string{"driver_name"}, nil)

// newMetrics registers the metrics; inUse counts the prepared claims of each driver.
func newMetrics(reg prometheus.Registerer, inUse func() map[string]int) *metrics {
	buckets := prometheus.ExponentialBucketsRange(.1, 40, 15)
	m := &metrics{
		spared: map[string]bool{},
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dra_operations_duration_seconds", Help: "How long it took to prepare or unprepare all claims of a pod.", Buckets: buckets,
		}, []string{"operation_name", "is_error"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dra_grpc_operations_duration_seconds", Help: "How long drivers took to respond to calls.", Buckets: buckets,
		}, []string{"driver_name", "method_name", "grpc_status_code"}),
	}
	m.prepareSkips = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dra_node_prepare_skips_total", Help: "How often a driver was not called for a claim whose devices need no NodePrepareResources (SkipNodeOperations).",
	}, []string{"driver_name"})
	m.unprepareSkips = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dra_node_unprepare_skips_total", Help: "How often a driver was not called for a claim whose devices need no NodeUnprepareResources (SkipNodeOperations).",
	}, []string{"driver_name"})
	reg.MustRegister(m.operations, m.calls, m.prepareSkips, m.unprepareSkips, inUseCollector{inUse})
	return m
}

func (m *metrics) operation(name string, began time.Time, err error) {
	m.operations.WithLabelValues(name, strconv.FormatBool(err != nil)).Observe(time.Since(began).Seconds())
}

// callTimer measures the calls of one driver.
type callTimer struct {
	driver string
	calls  *prometheus.HistogramVec
}

func (d callTimer) intercept(ctx context.Context, method string, q, r any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	began := time.Now()
	err := call(ctx, method, q, r, conn, opts...)
	code := status.Code(err)
	if code > codes.Unauthenticated { // a driver may send any number
		code = codes.Unknown
	}
	d.calls.WithLabelValues(d.driver, method, code.String()).Observe(time.Since(began).Seconds())
	return err
}

// skipped counts a skipped call. maxDrivers bounds the label, because a driver that a claim names
// need never register here.
func (m *metrics) skipped(driver string, call resourcev1.SkipNodeOperation) {
	driver = strings.ToValidUTF8(driver, "\uFFFD")
	m.mu.Lock()
	if !m.spared[driver] && len(m.spared) >= maxDrivers {
		driver = anyDriver
	}
	m.spared[driver] = true
	m.mu.Unlock()
	if call == resourcev1.SkipNodeOperationNodePrepareResources {
		m.prepareSkips.WithLabelValues(driver).Inc()
	} else {
		m.unprepareSkips.WithLabelValues(driver).Inc()
	}
}

func (m *metrics) forget(driver string) {
	m.calls.DeletePartialMatch(prometheus.Labels{"driver_name": driver})
}

// inUse counts the prepared claims.
func (m *Manager) inUse() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]int{anyDriver: 0}
	for _, c := range m.claims {
		if !c.prepared {
			continue
		}
		counts[anyDriver]++
		for driver := range c.drivers {
			counts[driver]++
		}
	}
	return counts
}

type inUseCollector struct{ inUse func() map[string]int }

func (inUseCollector) Describe(to chan<- *prometheus.Desc) { to <- inUseDesc }

func (c inUseCollector) Collect(to chan<- prometheus.Metric) {
	for driver, n := range c.inUse() {
		to <- prometheus.MustNewConstMetric(inUseDesc, prometheus.GaugeValue, float64(n), driver)
	}
}
