package csi

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"podd/internal/mask"
	"podd/internal/pluginconn"
	"podd/internal/text"
)

// callTimeout bounds an operation on a volume (upstream's csiTimeout).
const callTimeout = 2 * time.Minute

// maxResponse bounds a driver's response, in bytes.
const maxResponse = 4 << 20

// connect returns a client for a socket (pluginconn.Dial).
func connect(path string) (*grpc.ClientConn, error) { return pluginconn.Dial(path, maxResponse) }

// session is a connection to a driver for a few calls about one volume. Sessions are
// rare, and a connection that is not kept needs no handling of driver restarts.
type session struct {
	node         csipb.NodeClient
	conn         *grpc.ClientConn
	capabilities map[csipb.NodeServiceCapability_RPC_Type]bool
	count        func(method string, started time.Time, err error)
}

// openSession opens a session and gets the driver's capabilities.
func (v *Volumes) openSession(ctx context.Context, d *driver) (*session, error) {
	conn, err := connect(d.endpoint)
	if err != nil {
		return nil, err
	}
	s := &session{
		node: csipb.NewNodeClient(conn), conn: conn, capabilities: map[csipb.NodeServiceCapability_RPC_Type]bool{},
		count: func(method string, started time.Time, err error) { v.metrics.observe(d.name, method, started, err) },
	}
	response, err := call(ctx, s, s.node.NodeGetCapabilities, &csipb.NodeGetCapabilitiesRequest{})
	if err != nil {
		conn.Close()
		return nil, err
	}
	for _, c := range response.GetCapabilities() {
		s.capabilities[c.GetRpc().GetType()] = true
	}
	return s, nil
}

func (s *session) close() { _ = s.conn.Close() }

// call calls a method of the driver. Its error names the method and masks the secrets of
// the request.
func call[Q proto.Message, A any](ctx context.Context, s *session, method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	name := strings.TrimSuffix(string(request.ProtoReflect().Descriptor().Name()), "Request")
	started := time.Now()
	response, err := method(ctx, request)
	s.count(name, started, err)
	if err != nil {
		var secrets map[string]string
		if q, ok := any(request).(interface{ GetSecrets() map[string]string }); ok {
			secrets = q.GetSecrets()
		}
		return response, fmt.Errorf("%s: %w", name, redacted(err, secrets))
	}
	return response, nil
}

// maxMessage is the length to which a driver's message is truncated, in bytes.
const maxMessage = 1000

// redacted returns a driver's error with its code, with the values of secrets masked and
// the message truncated.
func redacted(err error, secrets map[string]string) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	return status.Error(s.Code(), truncated(masked(s.Message(), secrets)))
}

// truncated returns a driver's message as valid UTF-8 of bounded length.
func truncated(message string) string {
	return strings.ToValidUTF8(text.Truncate(message, maxMessage), "�")
}

// masked returns a text with the values masked, both as they are and in base64.
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

// isFinalError says whether the operation is certainly no longer in progress because the driver
// has rejected it (upstream's isFinalError, which follows the CSI and gRPC
// specifications).
func isFinalError(err error) bool {
	switch code, called := codeOf(err); code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	default:
		return called
	}
}

// codeOf returns the gRPC status code of a call; called is false for an error that is
// not from a call.
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
