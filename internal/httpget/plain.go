package httpget

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"
)

// plainTransport is HTTP/1.1 without TLS, with one exchange per connection, in the caller's
// goroutine. http.Transport does the same with three goroutines, which is most of the
// cost of a probe on a node's own bridge. The errors are http.Transport's.
type plainTransport struct {
	dialer     *net.Dialer
	bufferPool *sync.Pool // of *buffers
	// hook makes requests offer what NewHookTransport says.
	hook bool
}

func newPlainTransport(hook bool) plainTransport {
	return plainTransport{Dialer(), &sync.Pool{New: func() any {
		return &buffers{in: bufio.NewReaderSize(nil, 2<<10), out: bufio.NewWriterSize(nil, 1<<10)}
	}}, hook}
}

// buffers are the buffers of an exchange: half of what it would allocate.
type buffers struct {
	in  *bufio.Reader
	out *bufio.Writer
}

// drop releases the connection, which buffers in the pool must not keep.
func (b *buffers) drop() {
	b.in.Reset(nil)
	b.out.Reset(nil)
}

// RoundTrip implements http.RoundTripper. The context bounds the whole exchange,
// including the body.
func (t plainTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	addr := req.URL.Host
	if addr == "" {
		// The URL of a path such as x:y would be dialled as port 80 of this node's own
		// loopback.
		return nil, errors.New("http: no Host in request URL")
	}
	if req.URL.Port() == "" {
		addr = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	conn, err := t.dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, cause(ctx, err)
	}
	x := &exchange{req: req, conn: conn, bufferPool: t.bufferPool, hook: t.hook, buffers: t.bufferPool.Get().(*buffers)}
	// A call that blocks in the kernel is interrupted with the context, too.
	x.release = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	resp, err := x.roundTrip()
	if err != nil {
		_ = x.Close()
		return nil, cause(ctx, err)
	}
	return resp, nil
}

// cause returns why an exchange failed: its context's error, if that has ended.
func cause(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	return err
}

// exchange is one request and its response. It is also the response's body.
type exchange struct {
	req        *http.Request // with its context, which bounds the reading of the body too
	conn       net.Conn
	release    func() bool
	body       io.ReadCloser
	bufferPool *sync.Pool
	hook       bool
	buffers    *buffers // nil once closed
}

func (x *exchange) roundTrip() (*http.Response, error) {
	once := *x.req // a RoundTripper changes no request
	once.Close = !x.hook
	if x.hook && once.Header.Get("Accept-Encoding") == "" {
		once.Header = once.Header.Clone()
		once.Header.Set("Accept-Encoding", "gzip") // nobody looks at the body
	}
	out, buffered := x.buffers.out, x.buffers.in
	out.Reset(x.conn)
	if err := once.Write(out); err != nil {
		return nil, err
	}
	if err := out.Flush(); err != nil {
		return nil, err
	}
	in := &io.LimitedReader{R: x.conn, N: maxHeaders}
	buffered.Reset(in)
	if _, err := buffered.Peek(1); err != nil {
		return nil, err
	}
	for {
		resp, err := http.ReadResponse(buffered, &once)
		switch {
		case err != nil && in.N <= 0:
			return nil, fmt.Errorf("net/http: server response headers exceeded %d bytes; aborted", maxHeaders)
		case err != nil:
			return nil, fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err)
		case resp.StatusCode < http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols:
			continue // 1xx announces the response; the bound on headers counts on
		}
		in.N = math.MaxInt64
		x.body, resp.Body = resp.Body, x
		resp.Request = x.req
		return resp, nil
	}
}

// Read reads the body; it must not be called concurrently with Close.
func (x *exchange) Read(p []byte) (int, error) {
	if x.buffers == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := x.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = cause(x.req.Context(), err)
	}
	return n, err
}

// Close ends the exchange, whether or not the body was read to its end. It does not wait
// for the rest of a body, which may be endless.
func (x *exchange) Close() error {
	if x.buffers == nil {
		return nil
	}
	x.buffers.drop()
	x.bufferPool.Put(x.buffers)
	x.buffers = nil
	x.release()
	return x.conn.Close()
}
