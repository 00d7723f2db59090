package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/moby/spdystream"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kubelet's sessions (k8s.io/cri-streaming). They are streams on one SPDY connection,
// distinguished by headers.
const (
	headerStreamProtocol = "X-Stream-Protocol-Version"
	commandProtocol      = "v4.channel.k8s.io"
	forwardProtocol      = "portforward.k8s.io"
	exitCodeCause        = "ExitCode"
)

// open starts a session. The caller must close it.
func (c *client) open(ctx context.Context, path, protocol string, query url.Values) (*spdystream.Connection, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, c.explain(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	upgraded, err := upgrade(ctx, conn, path+"?"+query.Encode(), protocol)
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil, errInterrupted
		}
		return nil, err
	}
	streams, err := spdystream.NewConnection(upgraded, false)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("begin the session: %w", err)
	}
	go streams.Serve(spdystream.NoOpStreamHandler)
	return streams, nil
}

// upgrade turns a connection to the daemon into one that carries streams.
func upgrade(ctx context.Context, conn net.Conn, target, protocol string) (net.Conn, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://podd"+target, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	r.Header.Set(headerStreamProtocol, protocol)
	if err := r.Write(conn); err != nil {
		return nil, fmt.Errorf("query the daemon: %w", err)
	}
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, r)
	if err != nil {
		return nil, fmt.Errorf("read the daemon's response: %w", err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1024)) // for the error message
		_ = response.Body.Close()
		message := printable(strings.TrimSpace(string(text)))
		if response.StatusCode == http.StatusServiceUnavailable {
			return nil, notReadyError(message)
		}
		return nil, responseError(message)
	}
	return &bufferedConn{conn, in}, nil
}

// responseError is an error reported by the daemon or the runtime, as opposed to one of the
// connection.
type responseError string

func (e responseError) Error() string { return string(e) }

// notReadyError is the error of a daemon that has just started: the same request may soon
// succeed.
type notReadyError string

func (e notReadyError) Error() string { return string(e) }

// bufferedConn is a connection with bytes that a reader has already read.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func (b *bufferedConn) Read(p []byte) (int, error) { return b.in.Read(p) }

// terminalSize is a terminal's size in the protocol's form.
type terminalSize struct{ Width, Height uint16 }

// commandSession is a session of a command, or of a container's own process.
type commandSession struct {
	stdin          io.Reader // nil for none
	stdout, stderr io.Writer // stderr is nil with a terminal
	tty            bool
	// sizes receives the terminal's sizes; nil without one.
	sizes <-chan terminalSize
	// outcomeTimeout is how long to wait for the outcome after both outputs have ended, for a
	// command that ends with them; 0 means without limit. containerd 2.4 may never report the
	// outcome if the command did not read all of its input.
	outcomeTimeout time.Duration
}

// errNoOutcome means that the runtime did not report the outcome within outcomeTimeout.
var errNoOutcome = errors.New("the container runtime did not tell how the command ended")

// query adds the streams to a request.
func (c *commandSession) query(q url.Values) url.Values {
	for name, wanted := range map[string]bool{"input": c.stdin != nil, "output": c.stdout != nil, "error": c.stderr != nil, "tty": c.tty} {
		if wanted {
			q.Set(name, "1")
		}
	}
	return q
}

// run passes the streams until the command has ended. If the command failed, the error is an
// ExitError with the command's own code.
func (c *commandSession) run(ctx context.Context, conn *spdystream.Connection) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	verdict, err := stream(conn, v1.StreamTypeError)
	if err != nil {
		return err
	}
	outcome := make(chan error, 1)
	go func() { outcome <- readOutcome(verdict) }()
	var copies []<-chan error
	for _, s := range []struct {
		name string
		to   io.Writer
		from io.Reader
	}{{v1.StreamTypeStdin, nil, c.stdin}, {v1.StreamTypeStdout, c.stdout, nil}, {v1.StreamTypeStderr, c.stderr, nil}} {
		if s.to == nil && s.from == nil {
			continue
		}
		with, err := stream(conn, s.name)
		if err != nil {
			return err
		}
		if s.from != nil {
			go func() { _, _ = io.Copy(with, s.from); _ = with.Close() }()
			continue
		}
		copies = append(copies, startCopy(s.to, with))
	}
	if c.sizes != nil {
		resize, err := stream(conn, v1.StreamTypeResize)
		if err != nil {
			return err
		}
		go func() {
			encoder := json.NewEncoder(resize)
			for s := range c.sizes {
				if encoder.Encode(s) != nil {
					return
				}
			}
		}()
	}
	for _, done := range copies {
		if err := <-done; err != nil && ctx.Err() == nil {
			return err
		}
	}
	var late <-chan time.Time
	if c.outcomeTimeout > 0 {
		late = time.After(c.outcomeTimeout)
	}
	select {
	case err = <-outcome:
	case <-late:
		err = errNoOutcome
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

func startCopy(to io.Writer, from io.Reader) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(to, from)
		done <- err
	}()
	return done
}

func stream(conn *spdystream.Connection, kind string) (*spdystream.Stream, error) {
	s, err := conn.CreateStream(http.Header{http.CanonicalHeaderKey(v1.StreamType): {kind}}, nil, false)
	if err != nil {
		return nil, fmt.Errorf("open the stream %s: %w", kind, err)
	}
	return s, s.Wait()
}

// errSessionLost means that a session ended before its command, because podd, the runtime or the
// connection between them ended.
var errSessionLost = errors.New("the session broke off before the command ended")

// readOutcome reads the outcome of a command: a Status, even if it succeeded.
func readOutcome(from io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(from, 64<<10))
	if err != nil {
		return err
	}
	if len(text) == 0 { // a broken connection ends its streams
		return errSessionLost
	}
	var s metav1.Status
	if err := json.Unmarshal(text, &s); err != nil {
		return responseError(printable(string(text)))
	}
	if s.Status == metav1.StatusSuccess {
		return nil
	}
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			if code, err := strconv.Atoi(cause.Message); err == nil && cause.Type == exitCodeCause {
				return &ExitError{code, fmt.Errorf("command terminated with exit code %d", code)}
			}
		}
	}
	return responseError(printable(s.Message))
}
