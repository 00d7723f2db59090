package prober

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podd/internal/pod"
)

// These run against real servers on loopback.

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func httpJob(port int, path string, timeout time.Duration) job {
	return job{
		pod: &v1.Pod{}, container: &v1.Container{Name: "web"}, ip: "127.0.0.1", kind: liveness, timeout: timeout,
		probe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(port))}}},
	}
}

func expectAnswer(t *testing.T, name string, got answer, want verdict, message string) {
	t.Helper()
	text := got.message
	if got.err != nil {
		text = "error: " + got.err.Error()
	}
	if got.verdict != want || !strings.Contains(text, message) {
		t.Errorf("%s: got %s %.300q, want %s %q", name, got.verdict, text, want, message)
	}
}

// slack is what a busy machine may add to a time.
const slack = 3 * time.Second

// within fails the test when f takes longer.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > limit {
		t.Errorf("it took %v, want at most %v", took, limit)
	}
}

func TestHTTPStatuses(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
		fmt.Fprintf(w, "secret %d", code)
	})
	mux.HandleFunc("/to/{status}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/status/"+r.PathValue("status"), http.StatusFound)
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://away.test/", http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/early", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	h := newHandlers(nil, newGate(1))
	for path, want := range map[string]struct {
		verdict verdict
		message string
	}{
		"/status/200": {success, "secret 200"},
		"/status/299": {success, "secret 299"},
		"/status/304": {warning, "Probe terminated redirects, Response body: "},
		"/status/399": {warning, "Probe terminated redirects, Response body: secret 399"},
		"/status/400": {failure, "HTTP probe failed with statuscode: 400"},
		"/status/500": {failure, "HTTP probe failed with statuscode: 500"},
		"/to/200":     {success, "secret 200"},
		"/to/503":     {failure, "HTTP probe failed with statuscode: 503"},
		"/away":       {warning, "Probe terminated redirects, Response body: "},
		"/loop":       {failure, `Get "/loop": stopped after 10 redirects`},
		"/early":      {success, ""},
	} {
		got := h.ask(t.Context(), httpJob(portOf(t, server.URL), path, 10*sec))
		expectAnswer(t, path, got, want.verdict, want.message)
		if got.verdict == failure && strings.Contains(got.message, "secret") {
			t.Errorf("%s: the message of a failure has the body: %q", path, got.message)
		}
	}
}

// TestHostileHTTPTargets: whatever a target does, a run ends with its timeout
// and keeps 10 KiB at most.
func TestHostileHTTPTargets(t *testing.T) {
	const timeout = 300 * time.Millisecond
	flood := strings.Repeat("x", 64<<10)
	mux := http.NewServeMux()
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/hangbody", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begin")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/drip", func(w http.ResponseWriter, _ *http.Request) { // slow, but each read gets something
		for range 200 {
			if _, err := w.Write([]byte("x")); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	})
	mux.HandleFunc("/flood", func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write([]byte(flood)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/megabyte", func(w http.ResponseWriter, _ *http.Request) {
		for range 16 {
			_, _ = w.Write([]byte(flood))
		}
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Flood", flood+flood) })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "short")
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	h := newHandlers(nil, newGate(1))
	for path, want := range map[string]struct {
		verdict verdict
		message string
	}{
		"/hang":     {failure, "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"},
		"/hangbody": {failure, "context deadline exceeded (Client.Timeout or context cancellation while reading body)"},
		"/drip":     {failure, "Client.Timeout or context cancellation while reading body"},
		"/flood":    {success, "xxx"},
		"/megabyte": {success, "xxx"},
		"/headers":  {failure, "server response headers exceeded 65536 bytes; aborted"},
		"/cut":      {failure, "error: unexpected EOF"},
	} {
		var got answer
		limit := timeout
		if want.verdict == success {
			limit = 10 * time.Second
		}
		within(t, slack+limit, func() { got = h.ask(t.Context(), httpJob(portOf(t, server.URL), path, limit)) })
		expectAnswer(t, path, got, want.verdict, want.message)
		if len(got.message) > 10<<10 {
			t.Errorf("%s: got a message of %d bytes", path, len(got.message))
		}
	}
	// What was broken off leaves no goroutine of ours.
	before := runtime.NumGoroutine()
	for range 20 {
		h.ask(t.Context(), httpJob(portOf(t, server.URL), "/flood", timeout))
	}
	for began := time.Now(); runtime.NumGoroutine() > before+10; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > slack {
			t.Fatalf("got %d goroutines after twenty floods, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// raw serves each connection with f.
func raw(t *testing.T, f func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer func() { _ = c.Close() }(); f(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return portOf(t, l.Addr().String())
}

func TestServersThatSpeakNoHTTP(t *testing.T) {
	h := newHandlers(nil, newGate(1))
	read := func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }
	end := make(chan struct{})
	for name, c := range map[string]struct {
		serve   func(net.Conn)
		message string
	}{
		"closes":  {read, "EOF"},
		"garbage": {func(c net.Conn) { read(c); fmt.Fprint(c, "SSH-2.0-x\r\n\r\n") }, "malformed HTTP response"},
		"a head for ever": {func(c net.Conn) {
			read(c)
			for line := "HTTP/1.1 200 OK\r\n"; ; line = "X: " + longText + "\r\n" {
				if _, err := fmt.Fprint(c, line); err != nil {
					return
				}
			}
		}, "headers exceeded"},
		"1xx for ever": {func(c net.Conn) {
			read(c)
			for {
				if _, err := fmt.Fprint(c, strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100)); err != nil {
					return
				}
			}
		}, "headers exceeded"},
		"slow loris": {func(c net.Conn) {
			read(c)
			for {
				if _, err := fmt.Fprint(c, "H"); err != nil {
					return
				}
				select {
				case <-time.After(20 * time.Millisecond):
				case <-end:
					return
				}
			}
		}, "malformed HTTP"},
		"silent": {func(c net.Conn) { <-end }, "Client.Timeout exceeded while awaiting headers"},
	} {
		port := raw(t, c.serve)
		var got answer
		within(t, slack, func() { got = h.ask(t.Context(), httpJob(port, "/", 300*time.Millisecond)) })
		if name == "slow loris" && strings.Contains(got.message, "Client.Timeout") {
			continue // either is right: it is broken off
		}
		expectAnswer(t, name, got, failure, c.message)
	}
	close(end)
}

func TestAStopBreaksOffARun(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	port := raw(t, func(c net.Conn) { <-end })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	within(t, slack, func() { newHandlers(nil, newGate(1)).ask(ctx, httpJob(port, "/", time.Minute)) })
}

func TestHTTPSWithoutVerification(t *testing.T) {
	proto := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proto <- r.Proto }))
	server.EnableHTTP2 = true
	server.StartTLS() // its certificate is nobody's
	defer server.Close()
	h := newHandlers(nil, newGate(1))
	j := httpJob(portOf(t, server.URL), "/", 10*sec)
	j.probe.HTTPGet.Scheme = v1.URISchemeHTTPS
	expectAnswer(t, "https", h.ask(t.Context(), j), success, "")
	if got := <-proto; got != "HTTP/2.0" {
		t.Errorf("got %s over TLS, want HTTP/2.0 as upstream", got)
	}

	// Plain HTTP never becomes HTTP/2, nor offers to.
	plain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		proto <- r.Proto + r.Header.Get("Upgrade") + r.Header.Get("Connection") + r.Header.Get("Accept-Encoding")
	}))
	defer plain.Close()
	expectAnswer(t, "http", h.ask(t.Context(), httpJob(portOf(t, plain.URL), "/", 10*sec)), success, "")
	if got := <-proto; got != "HTTP/1.1close" {
		t.Errorf("got %q, want HTTP/1.1, closing, and nothing else", got)
	}

	broken := raw(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 512)); _, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) })
	j = httpJob(broken, "/", 10*sec)
	j.probe.HTTPGet.Scheme = v1.URISchemeHTTPS
	expectAnswer(t, "broken TLS", h.ask(t.Context(), j), failure, "handshake failure")
	j = httpJob(portOf(t, plain.URL), "/", 10*sec)
	j.probe.HTTPGet.Scheme = v1.URISchemeHTTPS
	expectAnswer(t, "https to http", h.ask(t.Context(), j), failure, "server gave HTTP response to HTTPS client")
	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS12}
	old.StartTLS()
	defer old.Close()
	j = httpJob(portOf(t, old.URL), "/", 10*sec)
	j.probe.HTTPGet.Scheme = v1.URISchemeHTTPS
	expectAnswer(t, "TLS 1.2", h.ask(t.Context(), j), failure, "statuscode: 404")
}

func TestConnectionsAreNotKept(t *testing.T) {
	var open atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	server.Start()
	defer server.Close()
	h := newHandlers(nil, newGate(1))
	for range 50 {
		expectAnswer(t, "/", h.ask(t.Context(), httpJob(portOf(t, server.URL), "/", 10*sec)), success, "")
	}
	for began := time.Now(); open.Load() > 1; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > slack {
			t.Fatalf("got %d open connections after fifty probes", open.Load())
		}
	}
}

func TestTCP(t *testing.T) {
	h := newHandlers(nil, newGate(1))
	port := raw(t, func(c net.Conn) {})
	j := httpJob(0, "", 300*time.Millisecond)
	j.container.Ports = []v1.ContainerPort{{Name: "db", ContainerPort: int32(port)}}
	try := func(port intstr.IntOrString, ip, host string) answer {
		j.ip = ip
		j.probe = &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: port, Host: host}}}
		return h.ask(t.Context(), j)
	}
	expectAnswer(t, "listens", try(intstr.FromInt32(int32(port)), "127.0.0.1", ""), success, "")
	expectAnswer(t, "named", try(intstr.FromString("db"), "127.0.0.1", ""), success, "")
	expectAnswer(t, "by host", try(intstr.FromString("db"), "", "localhost"), success, "")
	expectAnswer(t, "unknown name", try(intstr.FromString("web"), "127.0.0.1", ""), unknown, `no port named "web"`)
	expectAnswer(t, "no address", try(intstr.FromString("db"), "", ""), unknown, "no IP address yet")
	expectAnswer(t, "refused", try(intstr.FromInt32(1), "127.0.0.1", ""), failure, "dial tcp 127.0.0.1:1: connect: connection refused")
}

// execs is a runtime for commands.
type execs func(ctx context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error)

func (f execs) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error) {
	return f(ctx, id, cmd, timeout)
}

func execJob(timeout time.Duration, cmd ...string) job {
	return job{
		pod: &v1.Pod{}, containerID: "c1", kind: liveness, timeout: timeout,
		container: &v1.Container{Name: "web", Env: []v1.EnvVar{{Name: "DIR", Value: "/old"}, {Name: "DIR", Value: "/data"}}},
		probe:     &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: cmd}}},
	}
}

func TestExec(t *testing.T) {
	var ran string
	var result pod.ExecResult
	var err error
	h := newHandlers(execs(func(_ context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error) {
		ran = fmt.Sprint(id, cmd, timeout)
		return result, err
	}), newGate(1))
	j := execJob(7*sec, "cat", "$(DIR)/$(NOBODY)", "$$(DIR)")
	result.Output = []byte("fine")
	expectAnswer(t, "exit code 0", h.ask(t.Context(), j), success, "fine")
	if want := "c1[cat /data/$(NOBODY) $(DIR)] 7s"; ran != want {
		t.Errorf("got %s, want %s", ran, want)
	}
	result = pod.ExecResult{ExitCode: 3, Output: []byte("no such file")}
	expectAnswer(t, "exit code 3", h.ask(t.Context(), j), failure, "no such file")
	result.Output = make([]byte, 1<<20)
	if got := h.ask(t.Context(), j); len(got.message) != 10<<10 {
		t.Errorf("got %d bytes of output, want 10 KiB", len(got.message))
	}
	err = fmt.Errorf("exec: %w", pod.ErrTimeout)
	expectAnswer(t, "timeout", h.ask(t.Context(), execJob(sec, "sleep", "60")), failure, `command timed out: "sleep 60" timed out after 1s`)
	err = errors.New(`exec: "nosuch": executable file not found in $PATH`)
	expectAnswer(t, "no command", h.ask(t.Context(), j), unknown, "executable file not found")
}

// TestCommandsThatHangHoldUpNoOther: with a place for one command at a time, ten
// that hang delay the next by a moment each at most.
func TestCommandsThatHangHoldUpNoOther(t *testing.T) {
	inBubble(t, func(b *bench) {
		h := newHandlers(execs(func(ctx context.Context, id string, _ []string, timeout time.Duration) (pod.ExecResult, error) {
			if strings.HasPrefix(id, "hung") {
				<-ctx.Done() // and the runtime does not keep the timeout either
				return pod.ExecResult{}, ctx.Err()
			}
			time.Sleep(20 * time.Millisecond)
			return pod.ExecResult{}, nil
		}), newGate(1))
		b.by(h.ask)
		command := func(p *v1.Probe) {
			p.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
		}
		for i := range 10 {
			b.sync(aPod(pod.UID(fmt.Sprint("h", i)), nil, with(every(30), func(p *v1.Probe) { command(p); p.TimeoutSeconds = 20 }), nil), fmt.Sprint("hung", i))
		}
		b.sync(aPod("a", nil, with(every(30), command), nil), "a1")
		b.at(11 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: ok})
		b.at(22 * sec)
		b.expectEvents() // what fails in a container's first second is no event
		b.at(130 * sec)
		b.expect("h3", "web", pod.Probes{ContainerID: "hung3", Ready: bad})
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: ok})
	})
}

func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	services := health.NewServer()
	services.SetServingStatus("db", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, services)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	h := newHandlers(nil, newGate(1))
	try := func(port int, service *string, timeout time.Duration) (got answer) {
		j := httpJob(0, "", timeout)
		j.probe = &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(port), Service: service}}}
		within(t, slack+timeout, func() { got = h.ask(t.Context(), j) })
		return got
	}
	db, other := "db", "other"
	port := portOf(t, l.Addr().String())
	expectAnswer(t, "serving", try(port, nil, 10*sec), success, "service healthy")
	expectAnswer(t, "not serving", try(port, &db, 10*sec), failure, `service unhealthy (responded with "NOT_SERVING")`)
	expectAnswer(t, "unknown service", try(port, &other, 10*sec), failure,
		"error: health rpc probe failed: rpc error: code = NotFound desc = unknown service")

	bare := grpc.NewServer()
	l2, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = bare.Serve(l2) }()
	defer bare.Stop()
	expectAnswer(t, "no health service", try(portOf(t, l2.Addr().String()), nil, 10*sec), failure,
		"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health")

	hung := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		<-s.Context().Done()
		return status.FromContextError(s.Context().Err()).Err()
	}))
	l3, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = hung.Serve(l3) }()
	defer hung.Stop()
	expectAnswer(t, "hangs", try(portOf(t, l3.Addr().String()), nil, 300*time.Millisecond), failure,
		"timeout: health rpc did not complete within 300ms")

	expectAnswer(t, "refused", try(1, nil, 300*time.Millisecond), failure,
		`timeout: failed to connect service "127.0.0.1:1" within 300ms: context deadline exceeded`)
	expectAnswer(t, "refused, and why", try(1, nil, 300*time.Millisecond), failure, "connection refused")
	end := make(chan struct{})
	silent := raw(t, func(c net.Conn) { <-end })
	expectAnswer(t, "silent", try(silent, nil, 300*time.Millisecond), failure, "timeout: failed to connect service")
	close(end)
	web := raw(t, func(c net.Conn) { fmt.Fprint(c, strings.Repeat("HTTP/1.1 400 Bad Request\r\n\r\n", 10000)) })
	expectAnswer(t, "no gRPC", try(web, nil, 300*time.Millisecond), failure, "failed")
}

func TestAProbeWithoutAHandlerIsAnError(t *testing.T) {
	j := httpJob(0, "", sec)
	j.probe = &v1.Probe{}
	expectAnswer(t, "none", newHandlers(nil, newGate(1)).ask(t.Context(), j), unknown, "missing probe handler")
}
