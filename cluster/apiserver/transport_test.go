package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// closing is a body that notes that it is closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// Whoever sends it waits for that while the node asks for its certificate.
func TestARequestWithoutCredentialsFailsAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("no such file")
		c := &connection{ready: make(chan struct{}), notReadyReason: why}
		body := &closing{Reader: strings.NewReader("{}")}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://apiserver.test/api", body)
		began := time.Now()
		_, err := c.RoundTrip(r)
		if !errors.Is(err, why) || !strings.Contains(err.Error(), "this node has no credentials for its apiserver yet: ") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != credentialsTimeout {
			t.Errorf("it took %v, want %v", took, credentialsTimeout)
		}
		if !body.closed {
			t.Error("its body is not closed")
		}
		if _, err := c.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://apiserver.test/api", nil)); !errors.Is(err, why) {
			t.Errorf("without a body: got %v", err)
		}
		time.AfterFunc(2*time.Second, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.replaceLocked(&credentials{server: &url.URL{}})
		})
		began = time.Now()
		if _, err := c.credentials(t.Context()); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("with credentials after 2 s: got %v after %v", err, time.Since(began))
		}
		if _, err := c.credentials(t.Context()); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("from then on: got %v after %v", err, time.Since(began))
		}
	})
}

// connected returns a client of a server by a token.
func connected(t *testing.T, server string, change func(*Config)) (*Client, files) {
	t.Helper()
	f := kubeconfigOf(t)
	f.kubeconfig(server, "{token: x}")
	c := Config{Kubeconfig: f.path("kubeconfig"), UserAgent: "podd/1"}
	if change != nil {
		change(&c)
	}
	client, err := Connect(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, client) })
	return client, f
}

// The error of a client names the server that podd was started with.
func TestTheErrorOfAMovedApiserverNamesIt(t *testing.T) {
	p := newPlace(t)
	c, f := connected(t, p.URL, nil)
	if got := c.Server(); got != p.URL {
		t.Errorf("got %s, want %s", got, p.URL)
	}
	f.kubeconfig("https://127.0.0.1:1", "{token: x}")
	if err := c.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Node(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "by now 127.0.0.1:1: ") || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
}

// A node may reach its apiserver by a proxy alone.
func TestRequestsTakeTheProxyOfTheKubeconfig(t *testing.T) {
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	f := files{t, t.TempDir()}
	f.write("kubeconfig", fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://apiserver.test", proxy-url: %q}}], users: [{name: u, user: {token: x}}]}`, proxy.URL))
	c, err := Connect(Config{Kubeconfig: f.path("kubeconfig")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, c) })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := c.Node(ctx, "n"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("got %v, want the proxy's refusal", err)
	}
	if len(asked) == 0 {
		t.Fatal("the proxy was not asked")
	}
	if got := <-asked; got != "CONNECT apiserver.test:443" {
		t.Errorf("the proxy got %q", got)
	}
}

// Nothing that is under way ends because a file was written again.
func TestTheSameCredentialsKeepTheirConnections(t *testing.T) {
	p := newPlace(t)
	c, f := connected(t, p.URL, nil)
	f.write("ca.crt", p.ca())
	if err := c.Reload(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { c.FollowNode(ctx, "n", func([]*v1.Node, error) {}) })
	count := func(of *int) int { p.mu.Lock(); defer p.mu.Unlock(); return *of }
	until(t, "the node is watched", func() bool { return count(&p.watches) == 1 })
	before := c.conn.current
	for range 3 {
		f.kubeconfig(p.URL, "{token: x}")
		if err := c.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	if c.conn.current != before {
		t.Error("they were replaced")
	}
	if _, err := c.Node(ctx, "n"); err != nil || count(&p.open) != 1 || count(&p.watches) != 1 {
		t.Errorf("got %v; %d connections and %d watches, want one", err, count(&p.open), count(&p.watches))
	}
}

func TestTheClientCertificateOfTheKubeconfig(t *testing.T) {
	f := kubeconfigOf(t)
	cert, key := certify(t, "own", time.Now().Add(time.Hour))
	f.write("cert.pem", cert)
	f.write("key.pem", key)
	f.kubeconfig("https://apiserver.test", "{token: x}")
	c, err := Connect(Config{Kubeconfig: f.path("kubeconfig")})
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string, cert, key []byte) {
		t.Helper()
		if gotCert, gotKey := c.Certificate(); string(gotCert) != string(cert) || string(gotKey) != string(key) {
			t.Errorf("%s: got %s and %s, want %s and %s", when, gotCert, gotKey, cert, key)
		}
	}
	want("with a token", nil, nil)
	f.kubeconfig("https://apiserver.test", "{client-certificate: cert.pem, client-key: key.pem}")
	if err := c.Reload(); err != nil {
		t.Fatal(err)
	}
	want("with a certificate", cert, key)
	late, lateKey := certify(t, "late", time.Now().Add(-time.Minute))
	// A kubeconfig whose pair does not fit together is not used, nor is one that has expired.
	for what, spoil := range map[string]func(){
		"no pair": func() { f.write("key.pem", lateKey) },
		"too old": func() { f.write("cert.pem", late); f.write("key.pem", lateKey) },
	} {
		spoil()
		if other, err := c.conn.reload(); err == nil || other || !strings.HasPrefix(err.Error(), "kubeconfig "+f.path("kubeconfig")+": ") {
			t.Errorf("%s: got %t, %v", what, other, err)
		}
		before := c.conn.current
		if err := c.Reconnect(); err == nil || !strings.HasPrefix(err.Error(), "kubeconfig "+f.path("kubeconfig")+": ") || strings.Count(err.Error(), "kubeconfig ") != 1 || c.conn.current != before {
			t.Errorf("%s: new connections: got %v, and that there are some is %t", what, err, c.conn.current != before)
		}
		want(what, cert, key)
		f.write("cert.pem", cert)
		f.write("key.pem", key)
	}
	requested, itsKey := certify(t, "requested", time.Now().Add(time.Hour))
	if err := c.UseCertificate(requested, itsKey); err != nil {
		t.Fatal(err)
	}
	want("with another in its place", cert, key)
	now := c.conn.current
	// None of these is put in its place.
	broken := func(do func() error) error {
		f.write("kubeconfig", []byte("clusters: ["))
		defer f.kubeconfig("https://apiserver.test", "{client-certificate: cert.pem, client-key: key.pem}")
		return do()
	}
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"one of no pair":                {c.UseCertificate(requested, lateKey), "private key does not match public key"},
		"one too old":                   {c.UseCertificate(late, lateKey), "the client certificate expired at "},
		"one, with a broken kubeconfig": {broken(func() error { return c.UseCertificate(requested, itsKey) }), "yaml: "},
		"new connections with that":     {broken(c.Reconnect), "yaml: "},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", what, c.err, c.want)
		}
	}
	if c.conn.current != now {
		t.Error("one of them is used")
	}
}

// Another certificate than its own is what podd stops to use a requested one for.
func TestAKubeconfigsFirstCertificateIsNoOther(t *testing.T) {
	f := kubeconfigOf(t)
	f.kubeconfig("https://apiserver.test", "{token: x}")
	if err := os.Rename(f.path("kubeconfig"), f.path("bootstrap")); err != nil {
		t.Fatal(err)
	}
	c, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), BootstrapKubeconfig: f.path("bootstrap")})
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for text, want := range map[string]string{"clusters: [": "yaml: ", "{}": " is empty"} {
		f.write("kubeconfig", []byte(text))
		if other, err := c.conn.reload(); err == nil || other || len(c.Problems()) > 0 {
			t.Errorf("before there is one: got %t, %v and problems %v", other, err, c.Problems())
		}
		if _, err := c.conn.credentials(ended); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a request before there is one: got %v, want the newest reason, %q", err, want)
		}
	}
	if err := c.Reconnect(); err == nil {
		t.Error("a missing kubeconfig is no error")
	}
	for i, want := range []bool{false, false, true, false} {
		name := "one"
		if i > 1 {
			name = "two"
		}
		if i != 1 && i != 3 {
			cert, key := certify(t, name, time.Now().Add(time.Hour))
			f.write("cert.pem", cert)
			f.write("key.pem", key)
		}
		f.kubeconfig("https://apiserver.test", "{client-certificate: cert.pem, client-key: key.pem}")
		if got, err := c.conn.reload(); err != nil || got != want {
			t.Errorf("reading %d: got %t, %v, want %t", i, got, err, want)
		}
	}
}

// Whoever asks for certificates begins anew, and not for another token.
func TestOnlyAnotherCertificateOfTheKubeconfigIsTold(t *testing.T) {
	p := newPlace(t)
	c, f := connected(t, p.URL, nil)
	f.write("ca.crt", p.ca())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told, ended := 0, make(chan error, 1)
	go func() { ended <- c.WatchKubeconfig(ctx, func() { told++ }) }()
	cert, key := certify(t, "own", time.Now().Add(time.Hour))
	f.write("cert.pem", cert)
	f.write("key.pem", key)
	for user, by := range map[string]string{"{token: two}": "Bearer two", "{token: three}": "Bearer three"} {
		f.kubeconfig(p.URL, user)
		until(t, by+" asks", func() bool { _, err := c.Node(ctx, "n"); return err == nil && strings.HasPrefix(p.last(), by+" ") })
	}
	f.kubeconfig(p.URL, "{client-certificate: cert.pem, client-key: key.pem}")
	until(t, "the certificate is used", func() bool { _, err := c.Node(ctx, "n"); return err == nil && strings.HasPrefix(p.last(), "own ") })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
}

// However often the kubeconfig is read.
func TestARequestedCertificateIsUsedUntilTheKubeconfigHasAnother(t *testing.T) {
	p := newPlace(t)
	c, f := connected(t, "https://apiserver.test", nil)
	f.write("ca.crt", p.ca())
	certified := func(name string) {
		cert, key := certify(t, name, time.Now().Add(time.Hour))
		f.write("cert.pem", cert)
		f.write("key.pem", key)
		f.kubeconfig(p.URL, "{client-certificate: cert.pem, client-key: key.pem}")
	}
	asks := func(name string) {
		t.Helper()
		for range 2 {
			if err := c.Reload(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Node(t.Context(), "n"); err != nil || !strings.HasPrefix(p.last(), name+" ") {
				t.Errorf("got %v by %q, want it by %s", err, p.last(), name)
			}
		}
	}
	certified("own")
	asks("own")
	cert, key := certify(t, "requested", time.Now().Add(time.Hour))
	if err := c.UseCertificate(cert, key); err != nil {
		t.Fatal(err)
	}
	asks("requested")
	certified("other")
	asks("other")
}

// Who reads them learns since when, and what the newest reason is.
func TestTheProblemOfAKubeconfig(t *testing.T) {
	f := kubeconfigOf(t)
	synctest.Test(t, func(t *testing.T) {
		c, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i, text := range []string{"clusters: [", "clusters: [", "{}"} {
			f.write("kubeconfig", []byte(text))
			if err := c.Reload(); err == nil {
				t.Fatalf("%s: no error", text)
			}
			got := c.Problems()
			if len(got) != 1 || got[0].Origin != f.path("kubeconfig") || !got[0].LastGoodInUse || got[0].Hint == "" {
				t.Fatalf("%s: got %+v", text, got)
			}
			since, want := time.Duration(0), "yaml"
			if i == 2 {
				since, want = 2*time.Minute, "is empty"
			}
			if !got[0].Since.Equal(began.Add(since)) || !strings.Contains(got[0].Message, want) {
				t.Errorf("reading %d: got %+v, want %q since %v", i, got[0], want, began.Add(since))
			}
			time.Sleep(time.Minute)
		}
		f.kubeconfig("https://apiserver.test", "{token: x}")
		if err := c.Reload(); err != nil || len(c.Problems()) > 0 {
			t.Errorf("got %v and problems %v", err, c.Problems())
		}
	})
}

func TestRequestsAreCountedByTheHostOfTheKubeconfig(t *testing.T) {
	p, reg := newPlace(t), prometheus.NewRegistry()
	c, f := connected(t, p.URL, func(c *Config) { c.Metrics = reg })
	f.write("ca.crt", p.ca())
	if err := c.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Node(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, family := range families {
		text := family.GetName()
		for _, l := range family.Metric[0].Label {
			text += " " + l.GetName() + "=" + l.GetValue()
		}
		got[text] = true
	}
	host := strings.TrimPrefix(p.URL, "https://")
	for _, want := range []string{"rest_client_requests_total code=200 host=" + host + " method=GET", "rest_client_request_duration_seconds host=" + host + " verb=GET"} {
		if !got[want] {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}

// A bound has room for one request at least, and none is no bound.
func TestTheBoundOfRequestsForPods(t *testing.T) {
	f := kubeconfigOf(t)
	for name, c := range map[string]struct {
		qps   float32
		burst int
		want  time.Duration // for twenty requests
	}{
		"none":            {0, 1, 0},
		"of no burst":     {1, 0, 19 * time.Second},
		"of a burst":      {1, 4, 16 * time.Second},
		"of a great rate": {5, 5, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), QPS: c.qps, Burst: c.burst, WrapTransport: func(http.RoundTripper) http.RoundTripper { return answering{} }})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for range 20 {
					_, _ = client.Node(t.Context(), "n")
				}
				if got := time.Since(began); got != 0 {
					t.Errorf("twenty requests that never wait took %v", got)
				}
				for range 20 {
					_ = client.DeletePod(t.Context(), "default", "web", "uid")
				}
				if got := time.Since(began).Round(10 * time.Millisecond); got != c.want {
					t.Errorf("twenty requests took %v, want %v", got, c.want)
				}
			})
		})
	}
}
