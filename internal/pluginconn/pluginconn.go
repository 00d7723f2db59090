// Package pluginconn is what podd has in common with the plugins of all kinds that listen on a
// socket of their own: CSI drivers and device plugins.
package pluginconn

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

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
