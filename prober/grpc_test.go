package prober

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"podd/internal/versions"
)

func askGRPC(t *testing.T, port int, timeout time.Duration) attemptResult {
	t.Helper()
	j := httpJob(0, "", timeout)
	j.probe = &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(port)}}}
	return newHandlers(nil, newGate(1)).run(t.Context(), j)
}

// TestGRPCServersThatAreNotGRPCGo: net/http speaks HTTP/2 in its own way.
func TestGRPCServersThatAreNotGRPCGo(t *testing.T) {
	reply := func(status string, message proto.Message) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var asked grpc_health_v1.HealthCheckRequest
			if err != nil || len(body) < 5 || proto.Unmarshal(body[5:], &asked) != nil || r.Header.Get("Te") != "trailers" ||
				r.Header.Get("Content-Type") != "application/grpc" || !strings.HasPrefix(r.UserAgent(), "kube-probe/"+versions.KubernetesMinor+" grpc-go/") || r.URL.Path != "/grpc.health.v1.Health/Check" {
				http.Error(w, "no gRPC call", http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
			if message != nil {
				text, _ := proto.Marshal(message)
				_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...))
			}
			w.Header().Set("Grpc-Status", status)
			w.Header().Set("Grpc-Message", "50%25 well")
		}
	}
	serving := &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		verdict verdict
		message string
	}{
		"serving":   {reply("0", serving), success, "service healthy"},
		"an error":  {reply("14", nil), failure, "error: health rpc probe failed: rpc error: code = Unavailable desc = 50% well"},
		"no answer": {reply("0", nil), failure, "received no response message"},
		"no status": {reply("", serving), failure, "malformed grpc-status"},
		"not found": {http.NotFound, failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unexpected HTTP status code"},
		"a flood": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 4<<10))
			}
		}, failure, "error: health rpc probe failed"},
		"a flood of headers": {func(w http.ResponseWriter, _ *http.Request) {
			for i := range 100 {
				w.Header().Set("X-"+string(rune('A'+i%26))+string(rune('A'+i/26)), longText)
			}
		}, failure, "error: health rpc probe failed"},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: c.handler, Protocols: new(http.Protocols)}
		server.Protocols.SetUnencryptedHTTP2(true)
		go func() { _ = server.Serve(l) }()
		expectAnswer(t, name, askGRPC(t, portOf(t, l.Addr().String()), 10*sec), c.verdict, c.message)
		_ = server.Close()
	}
}

// rawGRPC serves HTTP/2 by frames: serve is called for each call, the first being 0, with
// its stream.
func rawGRPC(t *testing.T, serve func(n int, f *http2.Framer, stream uint32)) (port int) {
	t.Helper()
	var calls atomic.Int32
	return raw(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					_ = f.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				serve(int(calls.Add(1))-1, f, frame.StreamID)
			}
		}
	})
}

// answerGRPC answers the call with these headers, the message and the trailers.
func answerGRPC(f *http2.Framer, stream uint32, headers ...string) {
	write := func(end bool, fields ...string) {
		var block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		for i := 0; i < len(fields); i += 2 {
			_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
	}
	write(false, headers...)
	_ = f.WriteData(stream, false, []byte{0, 0, 0, 0, 2, 8, 1}) // SERVING
	write(true, "grpc-status", "0")
}

// TestACallThatTheServerDidNotBeginIsMadeAgain, once: a server that was about to
// end, and one with all its streams in use, were failures.
func TestACallThatTheServerDidNotBeginIsMadeAgain(t *testing.T) {
	for name, refuse := range map[string]func(f *http2.Framer, stream uint32) error{
		"goes away": func(f *http2.Framer, _ uint32) error { return f.WriteGoAway(0, http2.ErrCodeNo, nil) },
		"refuses": func(f *http2.Framer, stream uint32) error {
			return f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
		},
	} {
		for times, want := range []verdict{success, success, failure} {
			port := rawGRPC(t, func(n int, f *http2.Framer, stream uint32) {
				if n < times {
					_ = refuse(f, stream)
				} else {
					answerGRPC(f, stream, ":status", "200", "content-type", "application/grpc")
				}
			})
			expectAnswer(t, fmt.Sprint(name, " ", times, " times"), askGRPC(t, port, patience), want, "")
		}
	}
}

// TestGRPCServersMaySendManySmallFrames, though not without end: more than 200
// were a failure.
func TestGRPCServersMaySendManySmallFrames(t *testing.T) {
	many := func(number int) int {
		return rawGRPC(t, func(_ int, f *http2.Framer, stream uint32) {
			for range number {
				if f.WriteWindowUpdate(0, 1) != nil {
					return
				}
			}
			answerGRPC(f, stream, ":status", "200", "content-type", "application/grpc")
		})
	}
	expectAnswer(t, "1000", askGRPC(t, many(1000), 10*sec), success, "service healthy")
	expectAnswer(t, "100000", askGRPC(t, many(100_000), 10*sec), failure, "the server sent too much for one call")
}

// TestAGRPCServerThatNeverAnswersIsGivenUp, whatever it sends instead.
func TestAGRPCServerThatNeverAnswersIsGivenUp(t *testing.T) {
	port := rawGRPC(t, func(_ int, f *http2.Framer, stream uint32) {
		for f.WriteWindowUpdate(stream, 1) == nil {
			time.Sleep(time.Millisecond)
		}
	})
	expectAnswer(t, "frames without end", askGRPC(t, port, 500*time.Millisecond), failure, "timeout: health rpc did not complete within 500ms")
}

// TestOnlyAGRPCAnswerCounts: one without gRPC's content type was taken, too.
func TestOnlyAGRPCAnswerCounts(t *testing.T) {
	for contentType, c := range map[string]struct {
		want    verdict
		message string
	}{
		"application/grpc":       {success, ""},
		"application/grpc+proto": {success, ""},
		"application/grpc-web":   {failure, `code = Unknown desc = unexpected HTTP status code received from server: 200 (OK); transport: received unexpected content-type "application/grpc-web"`},
		"text/html":              {failure, `received unexpected content-type "text/html"`},
		"":                       {failure, "malformed header: missing HTTP content-type"},
	} {
		headers := []string{":status", "200"}
		if contentType != "" {
			headers = append(headers, "content-type", contentType)
		}
		port := rawGRPC(t, func(_ int, f *http2.Framer, stream uint32) { answerGRPC(f, stream, headers...) })
		expectAnswer(t, contentType, askGRPC(t, port, 10*sec), c.want, c.message)
	}
}

var longText = func() string {
	text := make([]byte, 2000)
	for i := range text {
		text[i] = 'x'
	}
	return string(text)
}()

// TestAServerThatComesUpWithinTheTimeoutIsFound, as grpc-go's client would.
func TestAServerThatComesUpWithinTheTimeoutIsFound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*sec)
	defer cancel()
	up := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() {
		again, err := net.Listen("tcp", address)
		if err != nil {
			up <- err
			return
		}
		server := &http.Server{Handler: http.NotFoundHandler(), Protocols: new(http.Protocols)}
		server.Protocols.SetUnencryptedHTTP2(true)
		context.AfterFunc(ctx, func() { _ = server.Close() })
		up <- nil
		_ = server.Serve(again)
	})
	got := askGRPC(t, portOf(t, address), 10*sec)
	if err := <-up; err != nil {
		t.Skip(err) // somebody took the port
	}
	expectAnswer(t, "late", got, failure, "unexpected HTTP status code received from server: 404 (Not Found)")
}
