package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/filewatch"
	"podd/internal/pod"
)

// Pods is the source of the pods. The values that it returns are shared and never changed.
// *status.Writer implements it.
type Pods interface {
	// Pods returns all pods with their newest status, sorted.
	Pods() []*v1.Pod
	// Origin is the path or URL of the pod's manifest, or empty.
	Origin(pod.UID) string
}

// Config configures a Server.
type Config struct {
	// Socket is a path, and required. ReadOnlyAddress and HealthzAddress are host:port; empty
	// disables the listener.
	Socket, ReadOnlyAddress, HealthzAddress string

	// KubeletAddress is host:port of the kubelet's API; empty disables it. KubeletTLS and
	// KubeletGuard are required with it. KubeletGuard lets authorized requests pass.
	KubeletAddress string
	KubeletTLS     *tls.Config
	KubeletGuard   func(next http.Handler) http.Handler
	// KubeletTrusts reports whether a client's certificates authenticate it; nil trusts none.
	// Trusted connections have larger limits.
	KubeletTrusts func([]*x509.Certificate) bool
	Kubelet       Kubelet

	// NodeName is one of the host names that the ports accept.
	NodeName string

	Version Version
	Pods    Pods
	// Expects reports whether a pod that is not among Pods may appear soon, because podd has
	// just started; nil for never.
	Expects func(namespace, name string) bool
	// Problems returns the problems of the manifests; nil for none.
	Problems func() []pod.Problem
	// Events returns the events of the pods with that name (empty: all), oldest first.
	Events func(namespace, name string) []*v1.Event
	// Causes returns, by container of the pod, the message of the probe or hook that stopped
	// the container or made it unready; nil for none.
	Causes func(*v1.Pod) map[string]string
	// Retry resets the back-off of a pod, for POST /retry on the socket. It returns false if
	// the pod is gone. If nil, there is no such route.
	Retry func(pod.UID) bool
	// Restart restarts all containers of a pod, or one of them. The error says why it does not. If
	// nil, there is no such route.
	Restart func(uid pod.UID, container string) error
	// Drain stops all pods and keeps them stopped until ctx ends. It closes the channel once
	// none is left. It serves POST /podd/v1/drain on the socket. If nil, there is no such
	// route.
	Drain func(ctx context.Context) (drained <-chan struct{})
	// Objects returns the objects that pods refer to, sorted and without any values. If nil,
	// there is no such route.
	Objects func() []ObjectInfo
	// Configz returns what /configz shows as JSON: the configuration without secrets, under the
	// key kubeletconfig, as in the kubelet.
	Configz func() any
	Health  []Check
	// Changes are subscriptions to changes of pods, problems or events. The channel receives
	// after changes, until stop is called. Without any, watchers poll every 2 s.
	Changes []func() (c <-chan struct{}, stop func())
	// Log receives failed requests; nil for none.
	Log *slog.Logger
	// Gather is served at /metrics. GatherProbes, which has series per pod, is served at
	// /metrics/probes. Metrics registers the server's own metrics.
	Gather, GatherProbes prometheus.Gatherer
	Metrics              prometheus.Registerer
}

// Version is podd's version.
type Version struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
	// Kubernetes is the version of the API that podd implements.
	Kubernetes string `json:"kubernetes"`
}

// Timeouts of requests. Responses are small, and clients local.
const (
	readHeaderTimeout = 5 * time.Second
	writeTimeout      = 60 * time.Second
	idleTimeout       = 2 * time.Minute
	shutdownTimeout   = 2 * time.Second
	maxHeaderBytes    = 64 << 10
)

// Bounds of unauthenticated connections on a port. Whatever such a peer sends, or does not
// read, it costs at most maxConnections × (untrustedStreams × untrustedHeaderBytes).
const (
	untrustedHeaderTimeout = 2 * time.Second
	untrustedWriteTimeout  = 15 * time.Second // a token's review must fit, and then its refusal
	portWriteTimeout       = 30 * time.Second // a scrape of many pods takes seconds
	untrustedHeaderBytes   = 16 << 10
	untrustedStreams       = 8
	untrustedBuffer        = 64 << 10
	// trustedHeaderBytes has room for an exec's command, escaped in the query.
	trustedHeaderBytes = 3*maxCommand + 64<<10
	trustedStreams     = 100
)

// Server serves the listeners in Config. Create it with New, then call Listen, then Run.
type Server struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	health  *health
	lists   chan struct{} // slots for lists of pods on the port
	scrapes chan struct{} // slots for metrics of pods
	// sessions has a slot for each session in a container.
	sessions chan struct{}
	// follows has a slot for each followed log.
	follows chan struct{}
	// queries has a slot for each query of the journal.
	queries chan struct{}
	// logDirs watches the directories of followed logs.
	logDirs filewatch.Dirs
	// paths holds the first path segment of every route of all APIs.
	paths   map[string]bool
	started time.Time
	// stopping is closed when Run's context ends.
	stopping chan struct{}

	// runtime may be read once attached is closed.
	runtime  Runtime
	attached chan struct{}

	listeners []listener
	// pendingAPIs are the APIs that cannot listen yet because another process holds their port.
	pendingAPIs []api
	lock        *lock
}

// listener is an API while it is served.
type listener struct {
	net.Listener
	api
	limiter *connLimiter // nil on the socket
}

// served is a listener and the server for its connections.
type served struct {
	net.Listener
	*http.Server
}

// servers returns the servers of a listener, and the function that accepts for them. accept is
// nil if the servers accept by themselves.
func (s *Server) servers(requests context.Context, l listener) (all []served, accept func() error) {
	if l.limiter == nil {
		return []served{{l.Listener, s.httpServer(requests, l)}}, nil
	}
	outside := limitedListener{l.Listener, l.limiter}
	if l.tls == nil {
		return []served{{outside, s.portServer(requests, l)}}, nil
	}
	trusts := s.config.KubeletTrusts
	if trusts == nil {
		trusts = func([]*x509.Certificate) bool { return false }
	}
	config := l.tls.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	trusted, untrusted := newConnListener(l.Addr()), newConnListener(l.Addr())
	sorted := &tlsSplitter{from: outside, config: config, trusts: trusts, trusted: trusted, untrusted: untrusted}
	return []served{{trusted, s.trustedServer(requests, l)}, {untrusted, s.untrustedServer(requests, l)}}, sorted.run
}

// New returns a server that does not listen yet.
func New(c Config) *Server {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		config: c, started: time.Now(), log: c.Log, metrics: newMetrics(c.Metrics), health: newHealth(c.Health),
		lists: make(chan struct{}, maxLists), scrapes: make(chan struct{}, maxScrapes), sessions: make(chan struct{}, maxSessions), follows: make(chan struct{}, maxFollowers), queries: make(chan struct{}, parallelQueries), stopping: make(chan struct{}), attached: make(chan struct{}),
	}
	s.paths = firstWords(s.apis())
	return s
}

// Listen opens the socket and the ports. The error says which one is unavailable and what to
// do. Call it before anything that a second podd must not do. After an error it holds nothing.
// After success, call Run or Close; either one releases everything.
func (s *Server) Listen() error {
	held, err := acquireLock(s.config.Socket)
	if err != nil {
		return err
	}
	s.lock = held
	var wrong []error
	for _, a := range s.apis() {
		if a.address == "" {
			continue
		}
		l, err := a.listen()
		if err != nil && a.name == healthPort && errors.Is(err, syscall.EADDRINUSE) {
			s.log.Warn("cannot serve health checks: trying again until the port is free", "error", err, "every", healthRetry)
			s.pendingAPIs = append(s.pendingAPIs, a)
			continue
		}
		if err != nil {
			wrong = append(wrong, err)
			if a.network == "unix" {
				break // another podd holds it, or it is unusable: trying the ports tells nothing new
			}
			continue
		}
		s.listeners = append(s.listeners, listener{l, a, a.newLimiter()})
	}
	if len(wrong) > 0 {
		s.release()
		return errors.Join(wrong...)
	}
	return nil
}

// Run serves until ctx ends, and then releases everything that Listen opened. Streams end at
// once; other requests get two seconds to finish. It returns an error if a listener fails. Call
// it once.
func (s *Server) Run(ctx context.Context) error {
	defer s.release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	requests, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(errStopping)
	var wg sync.WaitGroup
	fail := func(l listener, err error) {
		if !isClosed(err) {
			cancel(fmt.Errorf("serve on %s: %w", l.Addr(), err))
		}
	}
	serve := func(l listener) {
		servers, accept := s.servers(requests, l)
		if accept != nil {
			wg.Go(func() { fail(l, accept()) })
		}
		for _, one := range servers {
			wg.Go(func() { fail(l, one.Serve(one.Listener)) })
			wg.Go(func() {
				<-ctx.Done()
				_ = l.Close() // accepts for all of them
				shutDown(requests, one.Server)
			})
		}
	}
	for _, l := range s.listeners {
		serve(l)
	}
	for _, a := range s.pendingAPIs {
		wg.Go(func() {
			if l := awaitPort(ctx, a); l != nil {
				s.log.Info("health checks are served: the port is free", "address", a.address)
				serve(listener{l, a, a.newLimiter()})
			}
		})
	}
	<-ctx.Done()
	close(s.stopping)
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// healthRetry is how often podd tries again to open a health port that another process holds.
// The period is the kubelet's. Pods do not depend on this port.
const healthRetry = 5 * time.Second

// awaitPort waits until the port is free and listens on it. It returns nil if ctx ends first.
func awaitPort(ctx context.Context, a api) net.Listener {
	tick := time.NewTicker(healthRetry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if l, err := a.listen(); err == nil {
			return l
		}
	}
}

// httpServer serves a listener; requests is the context of its requests.
func (s *Server) httpServer(requests context.Context, l listener) *http.Server {
	server := &http.Server{
		Handler:           s.handler(l.api),
		ReadHeaderTimeout: readHeaderTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.With("listener", l.name).Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	if l.limiter != nil {
		server.IdleTimeout, server.ConnState, server.ConnContext = portIdleTimeout, l.limiter.connState, connContext
	}
	return server
}

// portServer serves a port that every local user reaches.
func (s *Server) portServer(requests context.Context, l listener) *http.Server {
	server := s.httpServer(requests, l)
	server.ReadHeaderTimeout, server.WriteTimeout, server.MaxHeaderBytes = untrustedHeaderTimeout, portWriteTimeout, untrustedHeaderBytes
	return server
}

// untrustedServer serves clients that showed no trusted certificate when they connected. They
// use a token, or nothing.
func (s *Server) untrustedServer(requests context.Context, l listener) *http.Server {
	server := s.httpServer(requests, l)
	server.ReadHeaderTimeout, server.WriteTimeout, server.MaxHeaderBytes = untrustedHeaderTimeout, untrustedWriteTimeout, untrustedHeaderBytes
	server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: untrustedStreams, MaxReceiveBufferPerConnection: untrustedBuffer, MaxReceiveBufferPerStream: untrustedBuffer,
		WriteByteTimeout: untrustedWriteTimeout,
	}
	return server
}

// trustedServer serves clients that showed a trusted certificate.
func (s *Server) trustedServer(requests context.Context, l listener) *http.Server {
	server := s.httpServer(requests, l)
	server.MaxHeaderBytes, server.HTTP2 = trustedHeaderBytes, &http.HTTP2Config{MaxConcurrentStreams: trustedStreams}
	return server
}

// shutDown accepts no more requests and lets current ones finish within shutdownTimeout. Then
// it closes their connections.
func shutDown(ctx context.Context, server *http.Server) {
	ctx, stop := context.WithTimeout(ctx, shutdownTimeout)
	defer stop()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close() // its listener is closed already
	}
}

// Close releases what Listen opened if Run is not called.
func (s *Server) Close() { s.release() }

// release closes everything that is open and removes the socket. It may be called twice.
func (s *Server) release() {
	for _, l := range s.listeners {
		_ = l.Close() // closing it twice, as when Run ends, does no harm
		if l.network == "unix" {
			_ = os.Remove(l.address) // ours, while the lock is held
		}
	}
	s.listeners = nil
	if s.lock != nil {
		s.lock.release()
		s.lock = nil
	}
}
