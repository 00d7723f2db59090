package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// relay stands between an agent and the runtime, passes every call on unread
// and notes when it came and when its answer was complete. It costs a few tenths
// of a millisecond for each call, which count as the agent's.
type relay struct {
	server *grpc.Server
	conn   *grpc.ClientConn
	served chan error

	mu    sync.Mutex
	calls []call
}

// call is one that has been answered.
type call struct {
	method     string // the last element of its name
	begin, end time.Time
}

// frame is a message that nobody here reads.
type frame struct{ data mem.BufferSlice }

// asIs is the codec of frames; it names itself like the one that it stands for.
type asIs struct{}

func (asIs) Marshal(v any) (mem.BufferSlice, error) { return v.(*frame).data, nil }
func (asIs) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	v.(*frame).data = data
	return nil
}
func (asIs) Name() string { return "proto" }

// newRelay listens on a unix socket until close.
func newRelay(socket, endpoint string) (*relay, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen for the agent's calls: %w", err)
	}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(asIs{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", endpoint, err), listener.Close())
	}
	r := &relay{conn: conn, served: make(chan error, 1)}
	r.server = grpc.NewServer(grpc.ForceServerCodecV2(asIs{}), grpc.UnknownServiceHandler(r.pass), grpc.MaxRecvMsgSize(64<<20))
	go func() { r.served <- r.server.Serve(listener) }()
	return r, nil
}

func (r *relay) close() error {
	r.server.Stop()
	return errors.Join(<-r.served, r.conn.Close())
}

// since are the answered calls that came after a time.
func (r *relay) since(t time.Time) (calls []call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.begin.After(t) {
			calls = append(calls, c)
		}
	}
	return calls
}

func (r *relay) pass(_ any, in grpc.ServerStream) error {
	begin := time.Now()
	method, _ := grpc.MethodFromServerStream(in)
	ctx, cancel := context.WithCancel(in.Context())
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	out, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() { // what the agent says
		if err := copyFrames(out, in); err != nil {
			cancel()
			return
		}
		_ = out.CloseSend()
	}()
	err = copyFrames(in, out) // what the runtime says
	in.SetTrailer(out.Trailer())
	r.mu.Lock()
	r.calls = append(r.calls, call{method: path.Base(method), begin: begin, end: time.Now()})
	r.mu.Unlock()
	return err
}

// messages is one direction of a stream, for both ends of a call.
type messages interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

func copyFrames(to, from messages) error {
	for {
		f := &frame{}
		err := from.RecvMsg(f)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := to.SendMsg(f); err != nil {
			return err
		}
	}
}
