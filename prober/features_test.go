package prober

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"

	"podd/internal/features"
)

// withGates returns handlers with feature gates switched on.
func withGates(t *testing.T, gates ...features.Gate) *handlers {
	t.Helper()
	given := map[string]bool{}
	for _, g := range gates {
		given[string(g)] = true
	}
	set, wrong := features.New(given)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	return newHandlers(nil, newGate(1)).withFeatures(set)
}

// serveProtocols serves both protocols without TLS, or one of them.
func serveProtocols(t *testing.T, handler http.Handler, set func(*http.Protocols)) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	set(s.Config.Protocols)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func TestAProbeSpeaksHTTP2WithoutTLSWhereItsGateIsOn(t *testing.T) {
	protocol := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/flood" {
			w.Header().Set("X-Flood", strings.Repeat("x", 1<<20))
		}
		if r.URL.Path == "/sick" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(r.Proto + " " + r.UserAgent()))
	}
	both := serveProtocols(t, http.HandlerFunc(protocol), func(p *http.Protocols) { p.SetHTTP1(true); p.SetUnencryptedHTTP2(true) })
	one := serveProtocols(t, http.HandlerFunc(protocol), func(p *http.Protocols) { p.SetHTTP1(true) })
	two := serveProtocols(t, http.HandlerFunc(protocol), func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })
	silent := raw(t, func(c net.Conn) { time.Sleep(time.Second) })
	http2, http1 := v1.HTTPProtocolHTTP2, v1.HTTPProtocolHTTP1
	on, off := withGates(t, features.H2CContainerProbe), withGates(t)
	for _, c := range []struct {
		name     string
		handlers *handlers
		protocol *v1.HTTPProtocol
		port     int
		path     string
		want     verdict
		message  string
	}{
		{"HTTP2", on, &http2, portOf(t, both.URL), "/", success, "HTTP/2.0 kube-probe/"},
		{"HTTP2, of a server that knows nothing else", on, &http2, portOf(t, two.URL), "/", success, "HTTP/2.0"},
		{"HTTP2, unhealthy", on, &http2, portOf(t, two.URL), "/sick", failure, "HTTP probe failed with statuscode: 503"},
		{"HTTP2, of a server of HTTP/1.1", on, &http2, portOf(t, one.URL), "/", failure, ""},
		{"HTTP2, a flood of headers", on, &http2, portOf(t, two.URL), "/flood", failure, ""},
		{"HTTP2, silence", on, &http2, silent, "/", failure, "Client.Timeout exceeded while awaiting headers"},
		{"HTTP1", on, &http1, portOf(t, both.URL), "/", success, "HTTP/1.1"},
		{"none", on, nil, portOf(t, both.URL), "/", success, "HTTP/1.1"},
		{"HTTP2, gate off", off, &http2, portOf(t, both.URL), "/", success, "HTTP/1.1"},
	} {
		timeout := 10 * sec
		if c.port == silent {
			timeout = 200 * time.Millisecond
		}
		j := httpJob(c.port, c.path, timeout)
		j.probe.HTTPGet.Protocol = c.protocol
		expectAnswer(t, c.name, c.handlers.run(t.Context(), j), c.want, c.message)
	}
}

func TestAGRPCProbeSpeaksTLSWhereItsGateIsOn(t *testing.T) {
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS() // for its certificate, which is nobody's
	defer web.Close()
	port := func(options ...grpc.ServerOption) int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer(options...)
		grpc_health_v1.RegisterHealthServer(server, health.NewServer())
		go func() { _ = server.Serve(l) }()
		t.Cleanup(server.Stop)
		return portOf(t, l.Addr().String())
	}
	secure := port(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: web.TLS.Certificates})))
	plain := port()
	withTLS, plaintext := v1.GRPCProbeModeTLS, v1.GRPCProbeModePlaintext
	on, off := withGates(t, features.GRPCContainerProbeTLS), withGates(t)
	for _, c := range []struct {
		name     string
		handlers *handlers
		mode     *v1.GRPCProbeMode
		port     int
		want     verdict
		message  string
	}{
		{"TLS", on, &withTLS, secure, success, "service healthy"},
		{"TLS, of a server without", on, &withTLS, plain, failure, "timeout: failed to connect service"},
		{"plaintext", on, &plaintext, plain, success, "service healthy"},
		{"none", on, nil, plain, success, "service healthy"},
		{"none, of a server with TLS", on, nil, secure, failure, "failed to connect service"},
		{"TLS, gate off", off, &withTLS, plain, success, "service healthy"},
	} {
		timeout := 10 * sec
		if c.want == failure {
			timeout = 500 * time.Millisecond
		}
		j := httpJob(0, "", timeout)
		j.probe = &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(c.port), Mode: c.mode}}}
		expectAnswer(t, c.name, c.handlers.run(t.Context(), j), c.want, c.message)
	}
}
