package prober

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podd/internal/httpget"
)

// Bounds of what a server may send in one call. A health answer is one SETTINGS, two
// HEADERS and a DATA frame of nine bytes; some servers add many a small one
// (WINDOW_UPDATE, PING).
const (
	maxGRPCAnswer = 64 << 10 // bytes, of whatever frames
	maxGRPCReply  = 16 << 10 // bytes
	maxGRPCHeader = 16 << 10 // bytes
)

// call is one unary gRPC call on a connection of its own: the protocol of
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md over HTTP/2
// frames. grpc-go's client, made for connections that live, takes three times
// the processor time for a call like this, most of it for its goroutines.
type call struct {
	conn   net.Conn
	framer *http2.Framer

	reply []byte
	// answers: the server has started a gRPC response.
	answers     bool
	grpcStatus  string
	grpcMessage string
}

func newCall(conn net.Conn) *call {
	c := &call{conn: conn, framer: http2.NewFramer(conn, bufio.NewReaderSize(conn, 1<<10))}
	c.framer.SetMaxReadFrameSize(16 << 10) // the least that the protocol allows
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	c.framer.MaxHeaderListSize = maxGRPCHeader
	return c
}

// send writes the whole call at once.
func (c *call) send(ctx context.Context, addr string, message []byte) error {
	var head, out bytes.Buffer
	enc := hpack.NewEncoder(&head)
	fields := [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/grpc.health.v1.Health/Check"}, {":authority", addr},
		{"content-type", "application/grpc"}, {"user-agent", httpget.UserAgent("probe")}, {"te", "trailers"},
	}
	if deadline, ok := ctx.Deadline(); ok {
		fields = append(fields, [2]string{"grpc-timeout", strconv.FormatInt(max(time.Until(deadline).Milliseconds(), 0)+1, 10) + "m"})
	}
	for _, f := range fields {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return err
		}
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) // not compressed
	body = append(body, message...)
	out.WriteString(http2.ClientPreface)
	w := http2.NewFramer(&out, nil)
	err := errors.Join(
		w.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxGRPCHeader}),
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}),
		w.WriteData(1, true, body))
	if err != nil {
		return err
	}
	_, err = c.conn.Write(out.Bytes())
	return err
}

// greeting waits for the server's SETTINGS, with which HTTP/2 begins: until then it
// is unknown whether the server speaks it.
func (c *call) greeting() error {
	f, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	if s, ok := f.(*http2.SettingsFrame); !ok || s.IsAck() {
		return fmt.Errorf("the server does not speak HTTP/2: it began with %v", f.Header().Type)
	}
	return c.framer.WriteSettingsAck()
}

// receive reads until the call has ended, and returns the reply's message. Its
// errors are gRPC's.
func (c *call) receive() ([]byte, error) {
	for read := uint32(0); read < maxGRPCAnswer; {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return nil, status.Errorf(codes.Unavailable, "error reading from server: %v", err)
		}
		read += 9 + f.Header().Length
		ended, err := c.take(f)
		if err != nil {
			return nil, err
		}
		if ended {
			return c.result()
		}
	}
	return nil, status.Error(codes.ResourceExhausted, "the server sent too much for one call")
}

// take processes one frame, and says whether it was the call's last.
func (c *call) take(f http2.Frame) (ended bool, err error) {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			err = c.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			err = c.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		if f.LastStreamID < 1 {
			return false, notBegun{status.Errorf(codes.Unavailable, "the server went away (%v): %.200s", f.ErrCode, f.DebugData())}
		}
	case *http2.RSTStreamFrame:
		err := status.Errorf(resetCode(f.ErrCode), "stream terminated by RST_STREAM with error code: %v", f.ErrCode)
		if f.ErrCode == http2.ErrCodeRefusedStream {
			err = notBegun{err}
		}
		return false, err
	case *http2.MetaHeadersFrame:
		return f.StreamEnded(), c.takeHeaders(f)
	case *http2.DataFrame:
		if len(c.reply)+len(f.Data()) > maxGRPCReply {
			return false, status.Error(codes.ResourceExhausted, "the server's answer is too long")
		}
		c.reply = append(c.reply, f.Data()...)
		return f.StreamEnded(), nil
	}
	if err != nil {
		err = status.Errorf(codes.Unavailable, "error writing to server: %v", err)
	}
	return false, err
}

// takeHeaders processes the response's headers, or its trailers. Without gRPC's
// content type it is a plain HTTP response, which ends the call; with it the HTTP
// status is ignored.
func (c *call) takeHeaders(f *http2.MetaHeadersFrame) error {
	if f.Truncated {
		return status.Error(codes.ResourceExhausted, "the server's headers are too long")
	}
	contentType := ""
	for _, h := range f.Fields {
		switch h.Name {
		case "content-type":
			contentType = h.Value
		case "grpc-status":
			c.grpcStatus = h.Value
		case "grpc-message":
			c.grpcMessage = h.Value
		}
	}
	httpStatus := f.PseudoValue("status")
	switch {
	case c.answers:
		return nil
	case isGRPC(contentType):
		c.answers = true
		return nil
	case len(httpStatus) == 3 && httpStatus[0] == '1' && !f.StreamEnded():
		return nil // announces the answer
	}
	return httpStatusError(httpStatus, contentType)
}

// isGRPC says that a content type is gRPC's, with any encoding or parameter.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// resetCode is the gRPC code for a reset of the stream, by the protocol's table.
func resetCode(code http2.ErrCode) codes.Code {
	switch code {
	case http2.ErrCodeRefusedStream:
		return codes.Unavailable
	case http2.ErrCodeCancel:
		return codes.Canceled
	case http2.ErrCodeEnhanceYourCalm:
		return codes.ResourceExhausted
	case http2.ErrCodeInadequateSecurity:
		return codes.PermissionDenied
	}
	return codes.Internal
}

// result is the outcome of the call once it has ended.
func (c *call) result() ([]byte, error) {
	code, err := strconv.ParseUint(c.grpcStatus, 10, 32)
	if err != nil {
		return nil, status.Errorf(codes.Unknown, "the server sent no status of the call, but %q", c.grpcStatus)
	}
	if code != 0 {
		message, err := url.PathUnescape(c.grpcMessage)
		if err != nil {
			message = c.grpcMessage
		}
		return nil, status.Error(codes.Code(code), message)
	}
	if len(c.reply) < 5 || c.reply[0] != 0 || int64(binary.BigEndian.Uint32(c.reply[1:])) != int64(len(c.reply)-5) {
		return nil, status.Error(codes.Internal, "the server's answer is not one uncompressed message")
	}
	return c.reply[5:], nil
}

// httpStatusError is the gRPC error for a plain HTTP response; the table is
// grpc-go's.
func httpStatusError(text, contentType string) error {
	number, _ := strconv.Atoi(text)
	code := codes.Unknown
	switch number {
	case http.StatusBadRequest:
		code = codes.Internal
	case http.StatusUnauthorized:
		code = codes.Unauthenticated
	case http.StatusForbidden:
		code = codes.PermissionDenied
	case http.StatusNotFound:
		code = codes.Unimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		code = codes.Unavailable
	}
	kind := "malformed header: missing HTTP content-type"
	if contentType != "" {
		kind = fmt.Sprintf("transport: received unexpected content-type %.100q", contentType)
	}
	return status.Errorf(code, "unexpected HTTP status code received from server: %.10s (%s); %s", text, http.StatusText(number), kind)
}
