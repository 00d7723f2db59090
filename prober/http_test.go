package prober

import (
	"context"
	"crypto/tls"
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

	v1 "k8s.io/api/core/v1"
)

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
		got := h.run(t.Context(), httpJob(portOf(t, server.URL), path, 10*sec))
		expectAnswer(t, path, got, want.verdict, want.message)
		if got.verdict == failure && strings.Contains(got.message, "secret") {
			t.Errorf("%s: the message of a failure has the body: %q", path, got.message)
		}
	}
}

// TestHostileHTTPTargets: whatever a target does, a run ends with its timeout
// and keeps 10 KiB at most.
func TestHostileHTTPTargets(t *testing.T) {
	const timeout = 2 * time.Second // of those that never end; the others end by themselves
	flood := strings.Repeat("x", 64<<10)
	mux := http.NewServeMux()
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/hangbody", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begin")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/drip", func(w http.ResponseWriter, _ *http.Request) { // slow, but each read gets something
		for {
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
		limit := patience
		if path == "/hang" || path == "/hangbody" || path == "/drip" {
			limit = timeout
		}
		got := h.run(t.Context(), httpJob(portOf(t, server.URL), path, limit))
		expectAnswer(t, path, got, want.verdict, want.message)
		if len(got.message) > 10<<10 {
			t.Errorf("%s: got a message of %d bytes", path, len(got.message))
		}
	}
	// What was broken off leaves no goroutine of ours.
	before := runtime.NumGoroutine()
	for range 20 {
		h.run(t.Context(), httpJob(portOf(t, server.URL), "/flood", timeout))
	}
	for began := time.Now(); runtime.NumGoroutine() > before+10; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
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
		limit := patience
		if name == "silent" || name == "slow loris" {
			limit = time.Second
		}
		got := h.run(t.Context(), httpJob(port, "/", limit))
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
	newHandlers(nil, newGate(1)).run(ctx, httpJob(port, "/", 24*time.Hour)) // that it returns is the test
}

func TestHTTPSWithoutVerification(t *testing.T) {
	proto := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proto <- r.Proto }))
	server.EnableHTTP2 = true
	server.StartTLS() // its certificate is nobody's
	defer server.Close()
	h := newHandlers(nil, newGate(1))
	overTLS := func(port int) attemptResult {
		j := httpJob(port, "/", 10*sec)
		j.probe.HTTPGet.Scheme = v1.URISchemeHTTPS
		return h.run(t.Context(), j)
	}
	expectAnswer(t, "https", overTLS(portOf(t, server.URL)), success, "")
	if got := <-proto; got != "HTTP/2.0" {
		t.Errorf("got %s over TLS, want HTTP/2.0 as upstream", got)
	}

	// Plain HTTP never becomes HTTP/2, nor offers to.
	plain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		proto <- r.Proto + r.Header.Get("Upgrade") + r.Header.Get("Connection") + r.Header.Get("Accept-Encoding")
	}))
	defer plain.Close()
	expectAnswer(t, "http", h.run(t.Context(), httpJob(portOf(t, plain.URL), "/", 10*sec)), success, "")
	if got := <-proto; got != "HTTP/1.1close" {
		t.Errorf("got %q, want HTTP/1.1, closing, and nothing else", got)
	}

	broken := raw(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 512)); _, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) })
	expectAnswer(t, "broken TLS", overTLS(broken), failure, "handshake failure")
	expectAnswer(t, "https to http", overTLS(portOf(t, plain.URL)), failure, "server gave HTTP response to HTTPS client")
	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS12}
	old.StartTLS()
	defer old.Close()
	expectAnswer(t, "TLS 1.2", overTLS(portOf(t, old.URL)), failure, "statuscode: 404")
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
		expectAnswer(t, "/", h.run(t.Context(), httpJob(portOf(t, server.URL), "/", 10*sec)), success, "")
	}
	for began := time.Now(); open.Load() > 1; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("got %d open connections after fifty probes", open.Load())
		}
	}
}
