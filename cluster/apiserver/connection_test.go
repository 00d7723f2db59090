package apiserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// place is an apiserver that notes who asks it, and by which connection.
type place struct {
	*httptest.Server
	mu    sync.Mutex
	users []string
	open  int // connections
	// peers are the clients' ends of those; watches are under way.
	peers   map[string]bool
	watches int
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{peers: map[string]bool{}}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get("Authorization")
		if len(r.TLS.PeerCertificates) > 0 {
			user += r.TLS.PeerCertificates[0].Subject.CommonName
		}
		p.mu.Lock()
		p.users = append(p.users, user+" "+r.URL.Path+" "+r.UserAgent())
		p.mu.Unlock()
		if r.URL.Query().Get("watch") != "" { // until the client is gone
			w.(http.Flusher).Flush()
			p.watch(1)
			<-r.Context().Done()
			p.watch(-1)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`)
	}))
	p.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	p.EnableHTTP2 = true
	p.Config.ConnState = func(of net.Conn, state http.ConnState) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch state {
		case http.StateNew:
			p.open++
			p.peers[of.RemoteAddr().String()] = true
		case http.StateClosed:
			p.open--
			delete(p.peers, of.RemoteAddr().String())
		}
	}
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

func (p *place) watch(more int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches += more
}

func (p *place) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.users) == 0 {
		return ""
	}
	return p.users[len(p.users)-1]
}

func (p *place) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
}

// certify makes a self-signed client certificate.
func certify(t *testing.T, name string, until time.Time) (cert, key []byte) {
	t.Helper()
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &made.PublicKey, made)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(made)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
}

// files are a kubeconfig and what it refers to.
type files struct {
	*testing.T
	dir string
}

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

func (f files) write(name string, text []byte) {
	f.Helper()
	half := f.path(name) + ".half"
	if err := errors.Join(os.WriteFile(half, text, 0o600), os.Rename(half, f.path(name))); err != nil {
		f.Fatal(err)
	}
}

// kubeconfig refers to ca.crt and has a user.
func (f files) kubeconfig(server, user string) {
	f.Helper()
	f.write("kubeconfig", fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority: ca.crt}}], users: [{name: u, user: %s}]}`, server, user))
}

// until waits for a fact.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// TestNewCredentialsAreTakenUp replaces one file after the other, with requests and a watch
// under way.
func TestNewCredentialsAreTakenUp(t *testing.T) {
	one, two := newPlace(t), newPlace(t)
	f := files{t, t.TempDir()}
	f.write("ca.crt", one.ca())
	f.write("token", []byte("first"))
	f.kubeconfig(one.URL, "{tokenFile: token}")
	var log bytes.Buffer
	c, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), UserAgent: "podd/1", Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	replaced := make(chan struct{}, 10)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { _ = c.WatchKubeconfig(ctx, func() { replaced <- struct{}{} }) })
	parts.Go(func() { c.FollowNode(ctx, "n", func([]*v1.Node, error) {}) })
	// asks waits until the next request is that of a user, at a place.
	asks := func(p *place, user string) {
		t.Helper()
		until(t, user+" asks", func() bool {
			_, err := c.Node(ctx, "n")
			return err == nil && strings.HasPrefix(p.last(), user+" ") && strings.HasSuffix(p.last(), " podd/1")
		})
	}
	asks(one, "Bearer first")
	f.write("token", []byte("second"))
	asks(one, "Bearer second")
	cert, key := certify(t, "system:node:n", time.Now().Add(time.Hour))
	f.write("pair.pem", append(cert, key...))
	f.kubeconfig(one.URL, "{client-certificate: pair.pem, client-key: pair.pem}")
	asks(one, "system:node:n")
	<-replaced
	// One that podd has requested, in the place of that; and not when there is another.
	cert, key = certify(t, "requested", time.Now().Add(time.Hour))
	if err := c.UseCertificate(cert, key); err != nil {
		t.Fatal(err)
	}
	asks(one, "requested")
	if err := c.Reload(); err != nil {
		t.Fatal(err)
	}
	asks(one, "requested")
	cert, key = certify(t, "again", time.Now().Add(time.Hour))
	f.write("pair.pem", append(cert, key...))
	asks(one, "again")
	<-replaced
	// What is broken, or of no use any more, changes nothing.
	for what, breakIt := range map[string]func(){
		"not a pair": func() { f.write("pair.pem", cert) },
		"expired": func() {
			cert, key := certify(t, "late", time.Now().Add(-time.Minute))
			f.write("pair.pem", append(cert, key...))
		},
		"no YAML": func() { f.write("kubeconfig", []byte("clusters: [")) },
		"gone": func() {
			if err := os.Remove(f.path("kubeconfig")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		f.write("pair.pem", append(cert, key...))
		f.kubeconfig(one.URL, "{client-certificate: pair.pem, client-key: pair.pem}")
		if err := c.Reload(); err != nil || len(c.Problems()) > 0 {
			t.Fatalf("%s: before: %v, %v", what, err, c.Problems())
		}
		breakIt()
		until(t, what+" is a problem", func() bool { return len(c.Problems()) > 0 })
		asks(one, "again")
	}
	// Another apiserver, below a path.
	f.write("ca.crt", two.ca())
	f.write("pair.pem", append(cert, key...))
	f.kubeconfig(two.URL+"/cluster/a", "{token: third}")
	asks(two, "Bearer third")
	if got := c.Problems(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	until(t, "what was followed is followed there", func() bool {
		two.mu.Lock()
		defer two.mu.Unlock()
		return strings.Contains(strings.Join(two.users, "\n"), "/cluster/a/api/v1/nodes podd/1") && strings.Contains(strings.Join(two.users, "\n"), "/cluster/a/api/v1/nodes/n podd/1")
	})
	until(t, "the connections with old credentials are closed", func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		return one.open == 0
	})
	if strings.Contains(log.String(), "third") || strings.Contains(log.String(), "PRIVATE") {
		t.Errorf("a secret was logged: %s", log.String())
	}
}

// A request that has taken the credentials a moment before they are replaced makes no
// connection with them, which nobody would close.
func TestReplacedCredentialsMakeNoConnection(t *testing.T) {
	p := newPlace(t)
	f := files{t, t.TempDir()}
	f.write("ca.crt", p.ca())
	f.kubeconfig(p.URL, "{token: first}")
	config, err := loadKubeconfig(f.path("kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCredentials(config)
	if err != nil {
		t.Fatal(err)
	}
	c.close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+"/api/v1/nodes/n", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.transport.RoundTrip(request)
	if err == nil {
		_ = answer.Body.Close()
	}
	if !errors.Is(err, errCredentialsReplaced) || p.last() != "" {
		t.Errorf("got %v, and the apiserver was asked by %q", err, p.last())
	}
}

// TestConnectionsAreMadeAnewForAnotherAddress has requests and a watch under way, and a
// requested certificate in use.
func TestConnectionsAreMadeAnewForAnotherAddress(t *testing.T) {
	p := newPlace(t)
	f := files{t, t.TempDir()}
	f.write("ca.crt", p.ca())
	f.kubeconfig(p.URL, "{token: first}")
	c, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), UserAgent: "podd/1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	cert, key := certify(t, "requested", time.Now().Add(time.Hour))
	if err := c.UseCertificate(cert, key); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { c.FollowNode(ctx, "n", func([]*v1.Node, error) {}) })
	peers := func() (all []string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for peer := range p.peers {
			all = append(all, peer)
		}
		return all
	}
	watched := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.watches > 0
	}
	until(t, "the node is watched", watched)
	before := peers()
	if err := c.Reconnect(); err != nil {
		t.Fatal(err)
	}
	until(t, "the old connections are closed", func() bool {
		return !slices.ContainsFunc(peers(), func(peer string) bool { return slices.Contains(before, peer) })
	})
	until(t, "the node is watched again", watched)
	if _, err := c.Node(ctx, "n"); err != nil || !strings.HasPrefix(p.last(), "requested ") {
		t.Errorf("got %v by %q", err, p.last())
	}
	f.write("kubeconfig", []byte("clusters: ["))
	if err := c.Reconnect(); err == nil {
		t.Error("a broken kubeconfig is no error")
	}
	if _, err := c.Node(ctx, "n"); err != nil {
		t.Errorf("with a broken kubeconfig the old connections do not stay: %v", err)
	}
}

// A node that has no credentials yet waits for them, and says so after a while.
func TestRequestsWaitForTheFirstCredentials(t *testing.T) {
	one := newPlace(t)
	f := files{t, t.TempDir()}
	f.write("ca.crt", one.ca())
	f.kubeconfig(one.URL, "{token: bootstrap}")
	if err := os.Rename(f.path("kubeconfig"), f.path("bootstrap")); err != nil {
		t.Fatal(err)
	}
	if _, err := Connect(Config{Kubeconfig: f.path("kubeconfig")}); err == nil {
		t.Error("neither file: no error")
	}
	c, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), BootstrapKubeconfig: f.path("bootstrap"), UserAgent: "podd/1"})
	if err != nil || c.Server() != one.URL {
		t.Fatalf("got %v, %v", c, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { _ = c.WatchKubeconfig(ctx, func() {}) })
	brief, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if _, err := c.Node(brief, "n"); err == nil || !strings.Contains(err.Error(), "no credentials for its apiserver yet") {
		t.Errorf("got %v", err)
	}
	cert, key := certify(t, "late", time.Now().Add(-time.Minute))
	f.write("pair.pem", append(cert, key...))
	if err := WriteKubeconfig(f.path("kubeconfig"), f.path("bootstrap"), f.path("pair.pem")); err != nil {
		t.Fatal(err)
	}
	if err := c.Reload(); err == nil || !strings.Contains(err.Error(), "the client certificate expired at") || CheckKubeconfig(f.path("kubeconfig")) == nil {
		t.Errorf("an expired certificate: got %v", err)
	}
	answered := make(chan error)
	go func() {
		for {
			if _, err := c.Node(ctx, "n"); err == nil || ctx.Err() != nil {
				answered <- err
				return
			}
		}
	}()
	cert, key = certify(t, "system:node:n", time.Now().Add(time.Hour))
	f.write("pair.pem", append(cert, key...))
	if err := <-answered; err != nil || !strings.HasPrefix(one.last(), "system:node:n ") {
		t.Errorf("got %v, %q", err, one.last())
	}
	<-c.Ready()
	if err := CheckKubeconfig(f.path("kubeconfig")); err != nil {
		t.Error(err)
	}
}
