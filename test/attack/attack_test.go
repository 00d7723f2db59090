package attack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestStreamsWhoseAnswersAreNotTakenDoNotKillPodd: the window of each stream is 0, so that
// no answer can be sent, and each comes with 60 KB of headers.
func TestStreamsWhoseAnswersAreNotTakenDoNotKillPodd(t *testing.T) {
	p := start(t)
	p.attacked(t, 62, func(ctx context.Context, n int) { streams(ctx, n, p.api, "") }, p.ask)
	if n := p.reviews.Load(); n != 0 {
		t.Errorf("got %d reviews of tokens, want none", n)
	}
}

// TestTokensThatTakeLongToReviewDoNotKillPodd is the same with made-up tokens, and an
// apiserver that is slow.
func TestTokensThatTakeLongToReviewDoNotKillPodd(t *testing.T) {
	p := start(t)
	p.slow.Store(true)
	p.attacked(t, 62, func(ctx context.Context, n int) { streams(ctx, n, p.api, "token") }, p.ask)
	p.slow.Store(false)
}

// streams opens a connection with 250 streams of HTTP/2, and holds them until podd closes it.
func streams(ctx context.Context, n, port int, token string) {
	conn, err := secure(ctx, n, port, "h2")
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		return
	}
	go func() { // what podd sends is taken, but for the answers, which have no window
		for {
			if _, err := framer.ReadFrame(); err != nil {
				return
			}
		}
	}()
	for i := range 250 {
		block := headers(token, i)
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block[:16000], EndStream: true}); err != nil {
			return
		}
		for rest := block[16000:]; len(rest) > 0; {
			part := rest[:min(len(rest), 16000)]
			rest = rest[len(part):]
			if err := framer.WriteContinuation(uint32(2*i+1), len(rest) == 0, part); err != nil {
				return
			}
		}
	}
	<-ctx.Done()
}

// headers are 60 KB.
func headers(token string, i int) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"}, {Name: ":path", Value: "/pods"}}
	if token != "" {
		fields = append(fields, hpack.HeaderField{Name: "authorization", Value: fmt.Sprint("Bearer ", token, i, time.Now().UnixNano())})
	}
	for n := range 6 {
		fields = append(fields, hpack.HeaderField{Name: fmt.Sprint("x-", n), Value: strings.Repeat("~^", 5000), Sensitive: true})
	}
	for _, f := range fields {
		_ = e.WriteField(f) // to a buffer
	}
	return block.Bytes()
}

// TestHeadersThatAreHeldDoNotKillPodd is HTTP/1.1: headers of 60 KB, whose end never comes.
func TestHeadersThatAreHeldDoNotKillPodd(t *testing.T) {
	p := start(t)
	p.attacked(t, 200, func(ctx context.Context, n int) {
		hold(ctx, n, p.api, "GET /pods HTTP/1.1\r\nHost: x\r\nX-A: "+strings.Repeat("a", 60_000))
	}, p.ask)
}

// TestConnectionsThatAnnounceABodyKeepNobodyOut: it never comes.
func TestConnectionsThatAnnounceABodyKeepNobodyOut(t *testing.T) {
	p := start(t)
	p.attacked(t, 128, func(ctx context.Context, n int) {
		hold(ctx, n, p.api, "POST /run/a/b/c HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
	}, p.ask)
}

// TestConnectionsThatPipelineKeepNobodyOut: they never read.
func TestConnectionsThatPipelineKeepNobodyOut(t *testing.T) {
	p := start(t)
	many := strings.Repeat("GET /pods HTTP/1.1\r\nHost: x\r\n\r\n", 20_000)
	p.attacked(t, 128, func(ctx context.Context, n int) { hold(ctx, n, p.api, many) }, p.ask)
}

// hold sends what is to be sent and reads nothing until podd closes the connection.
func hold(ctx context.Context, n, port int, text string) {
	conn, err := secure(ctx, n, port)
	if err != nil {
		return
	}
	holdOn(ctx, conn, text)
}

func holdOn(ctx context.Context, conn net.Conn, text string) {
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, text); err != nil {
		return
	}
	// The end of the connection is noticed without reading from it.
	for ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		if _, err := conn.Write([]byte("x")); err != nil {
			return
		}
	}
}

// TestHealthChecksAreAnsweredWhileALocalUserHoldsConnections of both ports that are open to
// everybody: a supervisor would restart a healthy podd.
func TestHealthChecksAreAnsweredWhileALocalUserHoldsConnections(t *testing.T) {
	p := start(t)
	ask := func(ctx context.Context) error {
		for _, port := range []int{p.healthz, p.readOnly} {
			if err := plain(ctx, port, "/livez"); err != nil {
				return err
			}
		}
		return nil
	}
	texts := []string{
		"GET /pods HTTP/1.1\r\nHost: localhost\r\nX-A: ",
		"POST /pods HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n",
		strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 2000),
		"",
	}
	p.attacked(t, 256, func(ctx context.Context, n int) {
		port := []int{p.healthz, p.readOnly}[n%2]
		var d net.Dialer // all are 127.0.0.1
		conn, err := d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return
		}
		holdOn(ctx, conn, texts[n/2%len(texts)])
	}, ask)
}

// TestRefusedRequestsDoNotFloodTheLog: made-up tokens, which the apiserver does not review,
// and long paths; 560 requests with paths of 60 KB wrote 33.7 MB in three seconds.
func TestRefusedRequestsDoNotFloodTheLog(t *testing.T) {
	p := start(t)
	p.failing.Store(true)
	before := p.reviews.Load()
	request := "GET /" + strings.Repeat("p", 10_000) + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer made-up-"
	p.attacked(t, 8, func(ctx context.Context, n int) {
		conn, err := secure(ctx, n, p.api)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // the kernel's socket takes one
		if _, err := fmt.Fprintf(conn, "%s%d%d\r\n\r\n", request, n, time.Now().UnixNano()); err == nil {
			_, _ = conn.Read(make([]byte, 1)) // the answer has begun: on to the next
		}
	}, p.ask)
	_ = p.cmd.Process.Kill()
	<-p.ended
	if n := p.log.Len(); n > 256<<10 {
		t.Errorf("podd's log has %d bytes, want at most 256 KiB", n)
	}
	t.Logf("%d bytes of log, %d reviews", p.log.Len(), p.reviews.Load()-before)
}

// TestACommandOfTheGreatestLengthPassesWithACertificate: strangers' headers are bounded more
// closely.
func TestACommandOfTheGreatestLengthPassesWithACertificate(t *testing.T) {
	p := start(t)
	err := p.get(t.Context(), "/pods?command="+strings.Repeat("%20", 128<<10))
	if err != nil {
		t.Error(err)
	}
}
