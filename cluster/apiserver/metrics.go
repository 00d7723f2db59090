package apiserver

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have client-go's names and labels (component-base/metrics/prometheus/restclient),
// which the alert KubeClientErrors and kubelet dashboards query.
type metrics struct {
	results *prometheus.CounterVec
	latency *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "Number of HTTP requests, partitioned by status code, method, and host.",
		}, []string{"code", "method", "host"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: "Request latency in seconds. Broken down by verb, and host.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
		}, []string{"verb", "host"}),
	}
	reg.MustRegister(m.results, m.latency)
	return m
}

// codeNoResponse is the code of a request that got no response.
const codeNoResponse = "<error>"

// countingTransport counts the requests of a transport. The measured time ends with the
// response header, so a watch takes no longer than any other request. The host is the
// kubeconfig's as podd read it at its start.
type countingTransport struct {
	*metrics
	next http.RoundTripper
	host string
}

// RoundTrip implements http.RoundTripper.
func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	begin := time.Now()
	answer, err := c.next.RoundTrip(r)
	code := codeNoResponse
	if err == nil {
		code = strconv.Itoa(answer.StatusCode)
	}
	c.results.WithLabelValues(code, r.Method, c.host).Inc()
	c.latency.WithLabelValues(r.Method, c.host).Observe(time.Since(begin).Seconds())
	return answer, err
}
