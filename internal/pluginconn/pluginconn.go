// Package pluginconn makes podd's gRPC connections to servers on Unix sockets: the
// container runtime, CSI drivers, device plugins and drivers of dynamic resources.
// AwaitReady also works for connections of other kinds.
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
// connects, and a lost connection is retried within a second. If nothing listens on the
// socket, calls fail at once. A response has at most maxResponse bytes. It does not block.
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

// AwaitReady waits for a connection for at most limit, because a socket's file exists
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

// Watch keeps a connection connected, as far as the plugin allows, and reports whether it
// is: at first and after each change. It blocks until ctx ends.
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

// Shorten cuts a plugin's text for logs, errors and people.
func Shorten(s string) string { return text.Truncate(s, 1000) }
