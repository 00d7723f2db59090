package prober

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"podd/internal/httpget"
)

// reconnect is the pause before another attempt at a connection within one run;
// upstream's.
const reconnect = time.Second

// grpc asks a server's health service (grpc.health.v1) over a connection of its
// own, without TLS. The messages are upstream's (pkg/probe/grpc).
func (h *handlers) grpc(ctx context.Context, j job) answer {
	if j.ip == "" {
		return answer{verdict: unknown, err: errNoIP}
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	addr := net.JoinHostPort(j.ip, strconv.Itoa(int(j.probe.GRPC.Port)))
	service := ""
	if j.probe.GRPC.Service != nil {
		service = *j.probe.GRPC.Service
	}
	message, err := proto.Marshal(&grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		return answer{verdict: unknown, err: err}
	}
	reply, err := checkHealth(ctx, addr, message)
	if refused, ok := errors.AsType[*notConnected](err); ok {
		return answer{verdict: failure, message: fmt.Sprintf("timeout: failed to connect service %q within %v: %v", addr, j.timeout, refused)}
	}
	var resp grpc_health_v1.HealthCheckResponse
	if err == nil && proto.Unmarshal(reply, &resp) != nil {
		err = status.Error(codes.Internal, "the server's answer is not a HealthCheckResponse")
	}
	if err != nil {
		return answer{verdict: failure, message: rpcFailure(ctx, err, j.timeout)}
	}
	if resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return answer{verdict: failure, message: fmt.Sprintf("service unhealthy (responded with %q)", resp.GetStatus().String())}
	}
	return answer{verdict: success, message: "service healthy"}
}

// notConnected: no server was reached before the timeout.
type notConnected struct{ last error }

// Error says why, which upstream does not.
func (e *notConnected) Error() string {
	if errors.Is(e.last, context.DeadlineExceeded) {
		return context.DeadlineExceeded.Error()
	}
	return fmt.Sprintf("%v (%v)", context.DeadlineExceeded, e.last)
}

// notBegun: the server reports that it did not process the call.
type notBegun struct{ error }

// checkHealth makes one call. A server that is not there yet is tried again
// until ctx ends, and one that did not begin the call once more, as in gRPC's
// "transparent retries" (https://github.com/grpc/proposal/blob/master/A6-client-retries.md).
func checkHealth(ctx context.Context, addr string, message []byte) ([]byte, error) {
	once := false
	var why *notConnected
	for {
		reply, err := callOnce(ctx, addr, message)
		if aside, ok := errors.AsType[notBegun](err); ok {
			if once {
				return nil, aside.error
			}
			once = true
			continue
		}
		refused, again := errors.AsType[*notConnected](err)
		if !again {
			return reply, err
		}
		if why == nil || !late(refused.last) {
			why = refused // that the time was over is known anyway
		}
		select {
		case <-ctx.Done():
			return nil, why
		case <-time.After(reconnect):
		}
	}
}

// late says that an attempt timed out.
func late(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

func callOnce(ctx context.Context, addr string, message []byte) ([]byte, error) {
	conn, err := httpget.Dialer().DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, &notConnected{err}
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	c := newCall(conn)
	if err := c.send(ctx, addr, message); err != nil {
		return nil, &notConnected{cause(ctx, err)}
	}
	if err := c.greeting(); err != nil {
		return nil, &notConnected{cause(ctx, err)}
	}
	return c.receive()
}

// cause is why a connection was lost: its context's cause, if that has ended.
func cause(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	return err
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
