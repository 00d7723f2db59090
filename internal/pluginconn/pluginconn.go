// Package pluginconn is podd's gRPC connections: to others who listen on a Unix socket, the
// container runtime, CSI drivers, device plugins and drivers of dynamic resources. AwaitReady
// serves connections of other kinds, too.
package pluginconn

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"podd/internal/text"
)

// dialTimeout bounds an attempt to connect to a socket (upstream's dialTimeoutDuration).
const dialTimeout = 10 * time.Second

// Dial returns a client for the socket at a path, or a URL of scheme unix. The first call
// connects, and a lost connection is tried again within a second. If nothing listens on the socket, calls fail at
// once. A response has maxResponse bytes at most. It does not block.
func Dial(path string, maxResponse int, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+strings.TrimPrefix(path, "unix://"), append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: dialTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
	}, more...)...)
}

// AwaitReady waits for a connection, at most for as long as limit: a socket's file exists
// before its server listens.
func AwaitReady(ctx context.Context, conn *grpc.ClientConn, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn.Connect()
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if state == connectivity.Idle {
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return context.Cause(ctx)
		}
	}
}

// Watch keeps a connection connected, as far as the plugin lets it, and tells whether it is:
// at first and after each change. It blocks until ctx ends.
func Watch(ctx context.Context, conn *grpc.ClientConn, tell func(connected bool)) {
	connected, told := false, false
	for {
		state := conn.GetState()
		if now := state == connectivity.Ready; now != connected || !told {
			connected, told = now, true
			tell(now)
		}
		if state == connectivity.Idle {
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// Shorten cuts what a plugin says, for logs, errors and people.
func Shorten(s string) string { return text.Cut(s, 1000) }
