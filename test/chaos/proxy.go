package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"podd/test/cluster"
)

// spoilt is how the proxy answers in the apiserver's place.
type spoilt int

const (
	sound   spoilt = iota // the apiserver answers
	tooMany               // 429, with Retry-After
	broken                // 500
	half                  // half of the apiserver's answer; watches end in the middle of an event
	silent                // nothing, until the client gives up or the proxy is sound again
	cut                   // the connection is closed
)

var spoiltNames = []string{"sound", "429", "500", "half a body", "silence", "a closed connection"}

func (s spoilt) String() string { return spoiltNames[s] }

// proxy passes requests on to an apiserver, with what authenticates them.
type proxy struct {
	url, certificate string
	server           *http.Server
	forward          *httputil.ReverseProxy

	mu  sync.Mutex
	how spoilt
	// changed is closed when how changes.
	changed chan struct{}
}

// newProxy serves on a port of loopback, with a certificate of its own that it writes.
func newProxy(certificate string, port int, to *cluster.APIServer) (*proxy, error) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	pair, err := selfSigned(certificate)
	if err != nil {
		return nil, fmt.Errorf("make the proxy's certificate: %w", err)
	}
	target, err := url.Parse(to.URL())
	if err != nil {
		return nil, err
	}
	p := &proxy{url: "https://" + address, certificate: certificate, changed: make(chan struct{})}
	quiet := log.New(io.Discard, "", 0)
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		// The test's own apiserver, of which a new one may have another certificate.
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true},
		FlushInterval: -1, ErrorLog: quiet, ModifyResponse: p.halve,
		// What an apiserver that is away looks like: no answer at all.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p.server = &http.Server{Handler: p, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}, ErrorLog: quiet}
	go func() { _ = p.server.ServeTLS(listener, "", "") }()
	return p, nil
}

func (p *proxy) close() error { return p.server.Close() }

func (p *proxy) spoil(how spoilt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.how = how
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *proxy) now() (how spoilt, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.how, p.changed
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch how, changed := p.now(); how {
	case tooMany:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	case broken:
		http.Error(w, "an error of the apiserver's", http.StatusInternalServerError)
	case silent:
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	case cut:
		panic(http.ErrAbortHandler)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

// halve cuts the answer, if answers are to be cut: one of a known length in its middle, a
// watch a moment after its beginning.
func (p *proxy) halve(answer *http.Response) error {
	if how, _ := p.now(); how != half {
		return nil
	}
	rest := answer.ContentLength / 2
	if rest < 0 {
		rest = 100
		go func(body io.Closer) { time.Sleep(300 * time.Millisecond); _ = body.Close() }(answer.Body)
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(answer.Body, rest), failing{}), answer.Body}
	return nil
}

// failing ends an answer early: the reverse proxy breaks the connection off.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// instead has a kubeconfig name the proxy in the apiserver's place.
func (p *proxy) instead(kubeconfig string) error {
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "clusters:") {
			lines[i] = fmt.Sprintf("clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]", p.url, p.certificate)
		}
	}
	return os.WriteFile(kubeconfig, []byte(strings.Join(lines, "\n")), 0o600)
}

// selfSigned makes a certificate for loopback and writes it, without its key.
func selfSigned(path string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "proxy"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, os.WriteFile(path, text, 0o600)
}
