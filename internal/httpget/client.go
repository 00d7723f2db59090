package httpget

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

const (
	// MaxBody bounds how much of a response's body is read, in bytes; it is upstream's.
	MaxBody = 10 << 10
	// maxHeaders bounds the headers of a response, in bytes. Go's default is 10 MiB,
	// which a target could make podd buffer for each probe.
	maxHeaders = 64 << 10
	// window is the initial flow control window of HTTP/2, in bytes.
	window = 64 << 10
)

// Dialer returns a dialer for frequent connections that are closed at once. Lingering for a
// second is upstream's measure against ports in TIME-WAIT (kubernetes/kubernetes#89898).
// Linux 6.18 was seen to hold them for a minute all the same, but only per target: a target
// that is probed every second takes 60 of 28 000.
func Dialer() *net.Dialer {
	return &net.Dialer{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			// Without it the connection works as well.
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}

// NewProbeTransport returns the transport for probes: without a proxy,
// verification of certificates, keep-alive or compression; HTTP/2 only if TLS
// negotiates it. A request's context bounds reading its response's body, too.
func NewProbeTransport() http.RoundTripper { return newTransport(false) }

// NewH2CTransport returns the transport for probes over HTTP/2 without TLS, with prior
// knowledge (RFC 9113, section 3.3). It never falls back to HTTP/1.1 or TLS. Each request uses
// a new connection.
func NewH2CTransport() http.RoundTripper {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{
		DialContext:            Dialer().DialContext,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaders,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: window, MaxReceiveBufferPerConnection: window},
	}
}

// NewHookTransport returns the transport for lifecycle handlers. It is like the one for
// probes, but without HTTP/2, and requests have the headers of upstream's client for
// handlers, which offers to keep the connection and to unpack gzip. Connections are closed
// all the same.
func NewHookTransport() http.RoundTripper { return newTransport(true) }

func newTransport(hook bool) http.RoundTripper {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!hook)
	return transport{newPlainTransport(hook), &http.Transport{
		DialContext: Dialer().DialContext,
		// A pod's certificate names its service, if anything; upstream verifies none,
		// and nothing confidential is sent.
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as documented for httpGet
		TLSHandshakeTimeout:    10 * time.Second,
		DisableKeepAlives:      !hook,
		DisableCompression:     !hook,
		MaxIdleConnsPerHost:    -1, // none is kept
		MaxResponseHeaderBytes: maxHeaders,
		WriteBufferSize:        1 << 10,
		ReadBufferSize:         2 << 10,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: window, MaxReceiveBufferPerConnection: window},
	}}
}

// transport selects the transport by scheme, which a redirect may change.
type transport struct {
	plain plainTransport
	tls   *http.Transport
}

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "http" {
		return t.plain.RoundTrip(req)
	}
	return t.tls.RoundTrip(req)
}

// CheckRedirect follows at most ten redirects, and none to another host: there the
// redirect itself is the response. For http.Client.CheckRedirect.
func CheckRedirect(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// ReadBody reads at most MaxBody bytes of a body; a longer one is not an error.
func ReadBody(body io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(body, MaxBody))
}
