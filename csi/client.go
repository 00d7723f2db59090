package csi

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"podd/internal/mask"
)

// callTimeout bounds an operation on a volume (upstream's csiTimeout).
const callTimeout = 2 * time.Minute

// maxAnswer bounds what a driver may answer, in bytes.
const maxAnswer = 4 << 20

// connect is a connection to a socket, which the first call makes. Where nobody
// listens, calls fail at once.
func connect(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: upstreamTimes.dial,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
}

// session is a conversation with a driver: a few calls about one volume. Sessions
// are rare, and a connection that nobody keeps needs no care when drivers restart.
type session struct {
	node  csipb.NodeClient
	conn  *grpc.ClientConn
	can   map[csipb.NodeServiceCapability_RPC_Type]bool
	count func(method string, started time.Time, err error)
}

// open begins a session, and asks what the driver can.
func (v *Volumes) open(ctx context.Context, d *driver) (*session, error) {
	conn, err := connect(d.endpoint)
	if err != nil {
		return nil, err
	}
	s := &session{
		node: csipb.NewNodeClient(conn), conn: conn, can: map[csipb.NodeServiceCapability_RPC_Type]bool{},
		count: func(method string, started time.Time, err error) { v.metrics.observe(d.name, method, started, err) },
	}
	answer, err := call(ctx, s, s.node.NodeGetCapabilities, &csipb.NodeGetCapabilitiesRequest{})
	if err != nil {
		conn.Close()
		return nil, err
	}
	for _, c := range answer.GetCapabilities() {
		s.can[c.GetRpc().GetType()] = true
	}
	return s, nil
}

func (s *session) close() { _ = s.conn.Close() }

// call calls a method of the driver. Its error names the method, and shows none of the
// secrets in the request.
func call[Q proto.Message, A any](ctx context.Context, s *session, method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	name := strings.TrimSuffix(string(request.ProtoReflect().Descriptor().Name()), "Request")
	started := time.Now()
	answer, err := method(ctx, request)
	s.count(name, started, err)
	if err != nil {
		var secrets map[string]string
		if q, ok := any(request).(interface{ GetSecrets() map[string]string }); ok {
			secrets = q.GetSecrets()
		}
		return answer, fmt.Errorf("%s: %w", name, clean(err, secrets))
	}
	return answer, nil
}

// maxMessage bounds what is shown of a driver's message, in bytes.
const maxMessage = 1000

// clean is a driver's error without the values of secrets, and not longer than
// people read. Its code stays.
func clean(err error, secrets map[string]string) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	return status.Error(s.Code(), bounded(masked(s.Message(), secrets)))
}

// bounded is a text of a driver's as it may be shown.
func bounded(text string) string {
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return strings.ToValidUTF8(text, "�")
}

// masked is a text without the values, as they are or in base64.
func masked(text string, secrets map[string]string) string {
	var forms []string
	for _, value := range secrets {
		for _, form := range []string{value, strings.TrimSpace(value), base64.StdEncoding.EncodeToString([]byte(value))} {
			if form != "" {
				forms = append(forms, form)
			}
		}
	}
	// The longest first: one may be part of another.
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	var pairs []string
	for _, form := range slices.Compact(forms) {
		pairs = append(pairs, form, mask.Value)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// final says that the operation is for sure not in progress any more: the driver
// has refused it (upstream's isFinalError, after CSI's and gRPC's documents).
func final(err error) bool {
	switch code, called := codeOf(err); code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	default:
		return called
	}
}

// codeOf is what a driver answered; called is false for an error that is no answer.
func codeOf(err error) (code codes.Code, called bool) {
	s, called := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err)
	if !called {
		return codes.OK, false
	}
	return s.GRPCStatus().Code(), true
}
