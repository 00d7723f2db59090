package podsapi

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// metrics are the kubelet's.
type metrics struct {
	total   *prometheus.CounterVec
	methods map[string]*prometheus.CounterVec // by the name of the call
	dropped prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_" + name, Help: help}, []string{"server_api_version", "status_code"})
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		total: counter("pod_requests_total", "Requests to the PodsAPI, by API version and status code."),
		methods: map[string]*prometheus.CounterVec{
			"ListPods":  counter("pod_requests_list_total", "Requests of ListPods to the PodsAPI, by API version and status code."),
			"GetPod":    counter("pod_requests_get_total", "Requests of GetPod to the PodsAPI, by API version and status code."),
			"WatchPods": counter("pod_requests_watch_total", "Ended requests of WatchPods to the PodsAPI, by API version and status code."),
		},
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_pod_watch_events_dropped_total", Help: "Events of the PodsAPI that a watcher did not take before its watch was ended."}),
	}
	reg.MustRegister(m.dropped)
	return m
}

// count counts a request that has ended. method is "/VERSION.Pods/CALL".
func (m *metrics) count(method string, err error) {
	version, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), ".")
	code := grpcstatus.Code(err)
	if errors.Is(err, context.Canceled) {
		code = codes.Canceled
	}
	m.total.WithLabelValues(version, code.String()).Inc()
	if of := m.methods[path.Base(method)]; of != nil {
		of.WithLabelValues(version, code.String()).Inc()
	}
}

// unary is a grpc.UnaryServerInterceptor.
func (m *metrics) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	response, err := handle(ctx, request)
	m.count(info.FullMethod, err)
	return response, err
}

// stream is a grpc.StreamServerInterceptor.
func (m *metrics) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	err := handle(server, stream)
	m.count(info.FullMethod, err)
	return err
}
