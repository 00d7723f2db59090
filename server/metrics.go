package server

import (
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	labels := []string{"method", "path", "server_type", "long_running"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "Number of the http requests received since the server started",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds", Help: "Duration in seconds to serve http requests", Buckets: prometheus.DefBuckets,
		}, labels),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "Number of the inflight http requests",
		}, labels),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.duration, m.inFlight)
	}
	return m
}

// count counts requests to an API. The path label is the first word of the path, as in the
// kubelet, if words has it. All other paths share one label.
func (m *metrics) count(server string, words map[string]bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if !words[first] {
			first = "other"
		}
		method := r.Method
		if method != http.MethodGet && method != http.MethodHead {
			method = "other"
		}
		_, long := r.URL.Query()["watch"]
		labels := []string{method, first, server, strconv.FormatBool(long)}
		m.requests.WithLabelValues(labels...).Inc()
		inFlight := m.inFlight.WithLabelValues(labels...)
		inFlight.Inc()
		began := time.Now()
		defer func() { // also for a handler that panics to end a connection
			inFlight.Dec()
			m.duration.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}

// RegisterProcess adds the metrics of the process itself: the Go and process collectors,
// kubelet_node_name (which the usual dashboards join on) and the build.
func RegisterProcess(reg prometheus.Registerer, node string, v Version) {
	constant := func(name, help string, labels prometheus.Labels) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
		g.Set(1)
		reg.MustRegister(g)
	}
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	constant("kubelet_node_name", "The node's name. The count is always 1.", prometheus.Labels{"node": node})
	constant("podd_build_info", "A constant 1, labelled with what podd was built from.", prometheus.Labels{
		"version": v.Version, "commit": v.Commit, "go_version": v.GoVersion,
	})
	major, minor, _ := strings.Cut(strings.TrimPrefix(v.Kubernetes, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	constant("kubernetes_build_info", "A constant 1, labelled with the version of Kubernetes whose API podd implements.", prometheus.Labels{
		"major": major, "minor": minor, "git_version": v.Kubernetes, "git_commit": v.Commit, "git_tree_state": "",
		"build_date": "", "go_version": v.GoVersion, "compiler": runtime.Compiler, "platform": v.Platform,
	})
}
