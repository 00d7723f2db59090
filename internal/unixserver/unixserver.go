// Package unixserver has the common parts of podd's gRPC sockets: who may connect, and how
// much each client may take.
package unixserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
)

const (
	// MaxConnections bounds the clients that a socket serves at a time; others wait.
	MaxConnections = 64
	// maxRequest bounds a request, in bytes. All are small.
	maxRequest = 64 << 10
	// connectTimeout bounds how long a client may take to begin: a stopping server waits for
	// it.
	connectTimeout = 5 * time.Second
	// maxCalls bounds the calls of one connection that are served at a time.
	maxCalls = 16
)

// ServerOptions bound requests.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxCalls), grpc.MaxHeaderListSize(16 << 10), grpc.ConnectionTimeout(connectTimeout)}
}

// Listen listens on a socket that only root may use, and makes its directory (0750). It
// replaces an existing file of that name in one step: whoever watches for the socket finds
// one with a listener.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	half := path + ".new"
	_ = os.Remove(half)
	l, err := net.Listen("unix", half)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err = os.Chmod(half, 0o600); err == nil {
		err = os.Rename(half, path)
	}
	if err != nil {
		l.Close()
		_ = os.Remove(half)
		return nil, err
	}
	return &limitListener{Listener: l, slots: make(chan struct{}, MaxConnections), closed: make(chan struct{})}, nil
}

// Serve serves until the server is stopped. That is no error, even if it comes first.
func Serve(s *grpc.Server, l net.Listener) error {
	err := s.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// limitListener serves a limited number of connections at a time.
type limitListener struct {
	net.Listener
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &conn{Conn: c, releaseSlot: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close ends Accept, even one that waits for a slot.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type conn struct {
	net.Conn
	releaseSlot func()
}

func (c *conn) Close() error {
	defer c.releaseSlot()
	return c.Conn.Close()
}
