package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener in memory, for bubbles; dial makes its connections.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return mine, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "pipe"} }

// slow has two requests that go on: /follow until its context ends, /slow until
// the test lets it go, whatever becomes of its context.
type slow struct {
	server  *Server
	ended   chan error // the cause for which /follow's context ended
	entered chan context.Context
	leave   chan struct{}
}

func (s *slow) group() group {
	return group{routes: []route{
		{"/follow", s.server.stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "first\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			s.ended <- context.Cause(r.Context())
		}))},
		{"/slow", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.entered <- r.Context()
			<-s.leave
			_, _ = io.WriteString(w, "whole")
		})},
	}}
}

// stopping runs a server with the group in a bubble, opens a stream and a slow
// request, and stops it: what the test then does is told by result and run.
func stopping(t *testing.T, test func(t *testing.T, s *slow, request context.Context, result, run <-chan error)) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{server: New(Config{Pods: &node{}}), ended: make(chan error, 1), entered: make(chan context.Context, 1), leave: make(chan struct{})}
		p := newPipes()
		s.server.listeners = []listener{{Listener: p, api: api{name: "test", groups: []group{s.group()}}}}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		run, result := make(chan error, 1), make(chan error, 1)
		go func() { run <- s.server.Run(ctx) }()
		transport := &http.Transport{DialContext: p.dial, DisableKeepAlives: true}
		client := &http.Client{Transport: transport}

		resp, err := client.Get("http://localhost/follow")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewReader(resp.Body)
		if line, err := lines.ReadString('\n'); err != nil || line != "first\n" {
			t.Fatalf("got %q, %v", line, err)
		}
		go func() {
			resp, err := client.Get("http://localhost/slow")
			if err == nil {
				var body []byte
				body, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err == nil && string(body) != "whole" {
					err = errors.New("got " + string(body))
				}
			}
			result <- err
		}()
		request := <-s.entered
		stop()
		if cause := <-s.ended; !errors.Is(cause, errStopping) {
			t.Errorf("the stream's context: got %v, want %v", cause, errStopping)
		}
		if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
			t.Errorf("the stream: got %q, %v, want its end", rest, err)
		}
		test(t, s, request, result, run)
		transport.CloseIdleConnections()
	})
}

// TestAStreamIsCancelledAndARequestMayFinish: a stream would otherwise hold up
// the end for as long as its client likes.
func TestAStreamIsCancelledAndARequestMayFinish(t *testing.T) {
	stopping(t, func(t *testing.T, s *slow, request context.Context, result, run <-chan error) {
		time.Sleep(shutdownTimeout - time.Millisecond)
		if err := request.Err(); err != nil {
			t.Errorf("the request's context has ended: %v", err)
		}
		close(s.leave)
		if err := <-result; err != nil {
			t.Errorf("the request under way: %v", err)
		}
		if err := <-run; err != nil {
			t.Errorf("Run: got %v", err)
		}
	})
}

// TestTheEndIsBoundedInTime: nobody who asks keeps podd from ending.
func TestTheEndIsBoundedInTime(t *testing.T) {
	stopping(t, func(t *testing.T, s *slow, request context.Context, result, run <-chan error) {
		began := time.Now()
		if err := <-run; err != nil || time.Since(began) != shutdownTimeout {
			t.Errorf("Run: got %v after %v, want nil after %v", err, time.Since(began), shutdownTimeout)
		}
		if err := <-result; err == nil {
			t.Error("the request was answered")
		}
		if request.Err() == nil {
			t.Error("the request's context goes on")
		}
		close(s.leave)
	})
}

// TestAWatchEndsWithPodd: ?watch is a stream; the same path without it is not.
func TestAWatchEndsWithPodd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		n.set(aPod("a", runs))
		s, p := New(Config{Pods: n}), newPipes()
		s.listeners = []listener{{Listener: p, api: api{name: "test", groups: []group{s.cliGroup()}}}}
		ctx, stop := context.WithCancel(t.Context())
		run := make(chan error, 1)
		go func() { run <- s.Run(ctx) }()
		resp, err := (&http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}).Get("http://localhost/podd/v1/pods?watch")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewScanner(resp.Body)
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		began := time.Now()
		stop()
		for lines.Scan() {
		}
		if err := <-run; err != nil || lines.Err() != nil || time.Since(began) >= shutdownTimeout {
			t.Errorf("got %v, the stream %v, after %v", err, lines.Err(), time.Since(began))
		}
	})
}
