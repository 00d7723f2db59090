package prober

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	v1 "k8s.io/api/core/v1"

	"podd/internal/httpget"
	"podd/internal/pluginconn"
)

const (
	// reconnect is the pause before another attempt at a connection within one run;
	// upstream's.
	reconnect = time.Second

	// Bounds of what a server may send: a health answer has a few bytes, and some servers
	// add many a small frame.
	maxGRPCAnswer = 64 << 10 // of whatever frames, on one connection
	maxGRPCReply  = 16 << 10
	maxGRPCHeader = 16 << 10
	// grpcBuffer is the buffer of each direction of a connection, in bytes.
	grpcBuffer = 1 << 10
)

// grpc asks a server's health service (grpc.health.v1) over a connection of its
// own. The messages are upstream's (pkg/probe/grpc).
func (h *handlers) grpc(ctx context.Context, j job) attemptResult {
	if j.ip == "" {
		return attemptResult{verdict: unknown, err: errNoIP}
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	service := ""
	if j.probe.GRPC.Service != nil {
		service = *j.probe.GRPC.Service
	}
	addr := net.JoinHostPort(j.ip, strconv.Itoa(int(j.probe.GRPC.Port)))
	var why connectError
	conn, err := newGRPCClient(addr, h.credentials(j.probe.GRPC), j.timeout, &why)
	if err != nil {
		return attemptResult{verdict: unknown, err: err}
	}
	defer func() { _ = conn.Close() }()
	if err := pluginconn.AwaitReady(ctx, conn, j.timeout); err != nil {
		return attemptResult{verdict: failure, message: fmt.Sprintf("timeout: failed to connect service %q within %v: %v%s", addr, j.timeout, context.DeadlineExceeded, why.String())}
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		return attemptResult{verdict: failure, message: rpcFailure(ctx, err, j.timeout)}
	}
	if resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return attemptResult{verdict: failure, message: fmt.Sprintf("service unhealthy (responded with %q)", resp.GetStatus().String())}
	}
	return attemptResult{verdict: success, message: "service healthy"}
}

// credentials returns the transport of a probe: plaintext, or TLS that accepts any certificate,
// as for httpGet (KEP-4939).
func (h *handlers) credentials(action *v1.GRPCAction) credentials.TransportCredentials {
	if h.grpcTLS && action.Mode != nil && *action.Mode == v1.GRPCProbeModeTLS {
		return credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) //nolint:gosec // as documented for grpc.mode
	}
	return insecure.NewCredentials()
}

// newGRPCClient returns a client for one call, which tells why it was not connected.
func newGRPCClient(addr string, transport credentials.TransportCredentials, timeout time.Duration, why *connectError) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent(httpget.UserAgent("probe")),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := httpget.Dialer().DialContext(ctx, "tcp", addr)
			if err != nil {
				why.set(err)
				return nil, err
			}
			return &watchedConn{Conn: conn, why: why}, nil
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnect, Multiplier: 1, MaxDelay: reconnect},
			MinConnectTimeout: timeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxGRPCReply)),
		grpc.WithMaxHeaderListSize(maxGRPCHeader),
		grpc.WithReadBufferSize(grpcBuffer), grpc.WithWriteBufferSize(grpcBuffer),
		grpc.WithDisableServiceConfig(),
	)
}

// connectError is why the last attempt to connect failed, which gRPC does not report. It
// leaves out a timeout, which is known anyway.
type connectError struct{ last atomic.Pointer[error] }

func (e *connectError) set(err error) {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return
	}
	e.last.Store(&err)
}

// String formats the error as the end of a message.
func (e *connectError) String() string {
	if last := e.last.Load(); last != nil {
		return fmt.Sprintf(" (%v)", *last)
	}
	return ""
}

// errTooMuch ends the call of a server that sends without end.
var errTooMuch = errors.New("the server sent too much for one call")

// watchedConn tells how a connection was lost, and is lost after maxGRPCAnswer bytes.
type watchedConn struct {
	net.Conn
	why  *connectError
	read int // by the one goroutine that reads
}

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.read += n; err == nil && c.read > maxGRPCAnswer {
		err = errTooMuch
	}
	if err != nil {
		c.why.set(err)
	}
	return n, err
}

func rpcFailure(ctx context.Context, err error, timeout time.Duration) string {
	s := status.Convert(err)
	deadline, _ := ctx.Deadline()
	// A server knows the deadline, too, and may give up a moment before.
	canceled := s.Code() == codes.Canceled && time.Until(deadline) < 50*time.Millisecond
	switch {
	case s.Code() == codes.Unimplemented:
		return "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + s.Message()
	case s.Code() == codes.DeadlineExceeded, canceled, ctx.Err() != nil:
		return fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	}
	return fmt.Sprintf("error: health rpc probe failed: %v", err)
}
