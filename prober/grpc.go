package prober

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"podd/internal/httpget"
)

// maxGRPC bounds one message and one set of headers, in bytes; a health answer
// has two.
const maxGRPC = 16 << 10

// grpc asks a server's health service (grpc.health.v1) over a connection of its
// own, without TLS. The messages are upstream's (pkg/probe/grpc).
func (h *handlers) grpc(ctx context.Context, j job) answer {
	if j.ip == "" {
		return answer{verdict: unknown, err: errNoIP}
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	addr := net.JoinHostPort(j.ip, strconv.Itoa(int(j.probe.GRPC.Port)))
	var refused atomic.Pointer[error] // why there is no connection, last
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithUserAgent(httpget.UserAgent("probe")),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithMaxHeaderListSize(maxGRPC), grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10),
		grpc.WithReadBufferSize(0), grpc.WithWriteBufferSize(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxGRPC)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := httpget.Dialer().DialContext(ctx, "tcp", addr)
			if err != nil {
				refused.Store(&err)
			}
			return conn, err
		}))
	if err != nil {
		return answer{verdict: failure, message: fmt.Sprintf("error: failed to connect service at %q: %v", addr, err)}
	}
	defer func() { _ = conn.Close() }()
	if err := connect(ctx, conn); err != nil {
		if why := refused.Load(); why != nil {
			err = fmt.Errorf("%w (%v)", err, *why) // which upstream does not say
		}
		return answer{verdict: failure, message: fmt.Sprintf("timeout: failed to connect service %q within %v: %v", addr, j.timeout, err)}
	}
	service := ""
	if j.probe.GRPC.Service != nil {
		service = *j.probe.GRPC.Service
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		return answer{verdict: failure, message: rpcFailure(err, j.timeout)}
	}
	if resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return answer{verdict: failure, message: fmt.Sprintf("service unhealthy (responded with %q)", resp.GetStatus().String())}
	}
	return answer{verdict: success, message: "service healthy"}
}

// connect waits for a connection until ctx ends: a server may come up in the
// meantime.
func connect(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
		conn.Connect() // an idle one does not try again by itself
	}
	return nil
}

func rpcFailure(err error, timeout time.Duration) string {
	switch s := status.Convert(err); s.Code() {
	case codes.Unimplemented:
		return "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + s.Message()
	case codes.DeadlineExceeded:
		return fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	}
	return fmt.Sprintf("error: health rpc probe failed: %v", err)
}
