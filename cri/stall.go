package cri

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// stallCheckInterval is how long a connection with calls in flight may receive nothing
	// before the watch looks more closely.
	stallCheckInterval = 5 * time.Second
	// stallPingTimeout is how long the runtime has to answer the calls that tell a connection
	// that stands still from a runtime that hangs.
	stallPingTimeout = 3 * time.Second
)

// stallWatch drops a connection on which nothing moves any more although the runtime
// answers on a new one: with some versions of gRPC, if both ends send much, each can wait
// for the other to read. It watches only while calls are in flight.
type stallWatch struct {
	log      *slog.Logger
	replaced prometheus.Counter
	endpoint string
	// ping makes a cheap call on the watched connection, pingNew on a new one.
	ping, pingNew func(context.Context) error

	// arrived counts reads from the connection; dropped counts connections that were closed
	// because they stood still. closing says that a connection is being closed: a call that
	// begins meanwhile may still get it.
	arrived atomic.Uint64
	dropped atomic.Uint64
	closing atomic.Bool

	mu       sync.Mutex
	conn     net.Conn    // the newest; guarded by mu
	inFlight int         // guarded by mu
	timer    *time.Timer // nil while nothing is watched; guarded by mu
	last     uint64      // arrived at the last check; guarded by mu
	closed   bool        // guarded by mu
}

// watchedConn counts what arrives.
type watchedConn struct {
	net.Conn
	arrived *atomic.Uint64
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.arrived.Add(1)
	}
	return n, err
}

// watch returns conn as the connection that is watched from now on.
func (s *stallWatch) watch(conn net.Conn) net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
	return &watchedConn{conn, &s.arrived}
}

// callStarted says that a call begins; callEnded says that it has ended.
func (s *stallWatch) callStarted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight++
	if s.timer == nil && !s.closed {
		s.last = s.arrived.Load()
		s.timer = time.AfterFunc(stallCheckInterval, s.check)
	}
}

func (s *stallWatch) callEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
}

// close ends the watch.
func (s *stallWatch) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// check is called while calls are in flight, every stallCheckInterval.
func (s *stallWatch) check() {
	conn, quiet := s.quiet()
	if quiet && s.isStalled(conn) {
		s.closing.Store(true)
		s.dropped.Add(1)
		s.replaced.Inc()
		_ = conn.Close() // gRPC connects anew, and fails the calls in flight
		s.closing.Store(false)
		s.log.Warn("the connection to the container runtime stood still, although the runtime answers on a new one: it was replaced, and its calls are made again",
			"endpoint", s.endpoint, "calls", s.calls())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = s.arrived.Load()
	if s.inFlight > 0 && !s.closed {
		s.timer.Reset(stallCheckInterval)
	} else {
		s.timer = nil
	}
}

func (s *stallWatch) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}

// quiet says whether nothing has arrived since the last check, with calls in flight.
func (s *stallWatch) quiet() (conn net.Conn, quiet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn, s.conn != nil && s.inFlight > 0 && s.arrived.Load() == s.last
}

// isStalled says that nothing arrives on a connection, not even the answer to a cheap
// call, while the runtime answers on a new one. Long calls alone are no sign of that: many
// wait for a container's grace period.
func (s *stallWatch) isStalled(conn net.Conn) bool {
	if s.within(s.ping) == nil || s.within(s.pingNew) != nil {
		return false
	}
	still, quiet := s.quiet()
	return quiet && still == conn
}

func (s *stallWatch) within(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), stallPingTimeout)
	defer cancel()
	return call(ctx)
}

// isRepeatable says whether a call may be made twice: either it only reads, or the second
// call finds the work of the first done. After a create, podd looks for the object instead.
func isRepeatable(method string) bool {
	switch kindOf(method) {
	case readCall, stopContainerCall, removeCall:
		return true
	}
	return method == "UpdateContainerResources" || method == "UpdatePodSandboxResources" || method == "Version" || method == "Status"
}

// pingVersion is the cheap call.
func pingVersion(ctx context.Context, runtime runtimeapi.RuntimeServiceClient) error {
	_, err := runtime.Version(ctx, &runtimeapi.VersionRequest{Version: "v1"})
	return err
}
