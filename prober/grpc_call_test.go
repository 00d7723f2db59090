package prober

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
)

func askGRPC(t *testing.T, port int, timeout time.Duration) answer {
	t.Helper()
	j := httpJob(0, "", timeout)
	j.probe = &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(port)}}}
	return newHandlers(nil, newGate(1)).ask(t.Context(), j)
}

// TestGRPCServersThatAreNotGRPCGo: net/http speaks HTTP/2 in its own way.
func TestGRPCServersThatAreNotGRPCGo(t *testing.T) {
	reply := func(status string, message proto.Message) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var asked grpc_health_v1.HealthCheckRequest
			if err != nil || len(body) < 5 || proto.Unmarshal(body[5:], &asked) != nil || r.Header.Get("Te") != "trailers" ||
				r.Header.Get("Content-Type") != "application/grpc" || r.UserAgent() != "kube-probe/1.36" || r.URL.Path != "/grpc.health.v1.Health/Check" {
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
		"no answer": {reply("0", nil), failure, "not one uncompressed message"},
		"no status": {reply("", serving), failure, "the server sent no status of the call"},
		"not found": {http.NotFound, failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unexpected HTTP status code"},
		"a flood": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 4<<10))
			}
		}, failure, "too long"},
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

// FuzzGRPCServer: whatever a server sends, the call ends with an error or a
// bounded answer.
func FuzzGRPCServer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88})
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 7, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 5, 0, 0})
	f.Fuzz(func(t *testing.T, said []byte) {
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		go func() { _, _ = there.Write(said); _ = there.Close() }()
		c := newCall(here)
		if c.greeting() == nil {
			if reply, err := c.receive(); err == nil && len(reply) > maxGRPCReply {
				t.Errorf("got a reply of %d bytes", len(reply))
			}
		}
		_ = here.Close()
	})
}
