package prober

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podd/internal/pod"
)

// These run against real servers on loopback.

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func httpJob(port int, path string, timeout time.Duration) job {
	return job{
		pod: &v1.Pod{}, container: &v1.Container{Name: "web"}, ip: "127.0.0.1", kind: liveness, timeout: timeout,
		probe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(port))}}},
	}
}

func expectAnswer(t *testing.T, name string, got attemptResult, want verdict, message string) {
	t.Helper()
	text := got.message
	if got.err != nil {
		text = "error: " + got.err.Error()
	}
	if got.verdict != want || !strings.Contains(text, message) {
		t.Errorf("%s: got %s %.300q, want %s %q", name, got.verdict, text, want, message)
	}
}

// patience is when a test gives up. Targets that hang, drip or flood here do so for
// ever, so that a run that ends at all has ended by itself.
const patience = time.Minute

func TestTCP(t *testing.T) {
	h := newHandlers(nil, newGate(1))
	port := raw(t, func(c net.Conn) {})
	j := httpJob(0, "", 300*time.Millisecond)
	j.container.Ports = []v1.ContainerPort{{Name: "db", ContainerPort: int32(port)}}
	try := func(port intstr.IntOrString, ip, host string) attemptResult {
		j.ip = ip
		j.probe = &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: port, Host: host}}}
		return h.run(t.Context(), j)
	}
	expectAnswer(t, "listens", try(intstr.FromInt32(int32(port)), "127.0.0.1", ""), success, "")
	expectAnswer(t, "named", try(intstr.FromString("db"), "127.0.0.1", ""), success, "")
	expectAnswer(t, "by host", try(intstr.FromString("db"), "", "localhost"), success, "")
	expectAnswer(t, "unknown name", try(intstr.FromString("web"), "127.0.0.1", ""), unknown, `no port named "web"`)
	expectAnswer(t, "no address", try(intstr.FromString("db"), "", ""), unknown, "no IP address yet")
	expectAnswer(t, "refused", try(intstr.FromInt32(1), "127.0.0.1", ""), failure, "dial tcp 127.0.0.1:1: connect: connection refused")
}

// execs is a runtime for commands.
type execs func(ctx context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error)

func (f execs) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error) {
	return f(ctx, id, cmd, timeout)
}

func execJob(timeout time.Duration, cmd ...string) job {
	return job{
		pod: &v1.Pod{}, containerID: "c1", kind: liveness, timeout: timeout,
		container: &v1.Container{Name: "web", Env: []v1.EnvVar{{Name: "DIR", Value: "/old"}, {Name: "DIR", Value: "/data"}}},
		probe:     &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: cmd}}},
	}
}

func TestExec(t *testing.T) {
	var ran string
	var result pod.ExecResult
	var err error
	h := newHandlers(execs(func(_ context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error) {
		ran = fmt.Sprint(id, cmd, timeout)
		return result, err
	}), newGate(1))
	j := execJob(7*sec, "cat", "$(DIR)/$(NOBODY)", "$$(DIR)")
	result.Output = []byte("fine")
	expectAnswer(t, "exit code 0", h.run(t.Context(), j), success, "fine")
	if want := "c1[cat /data/$(NOBODY) $(DIR)] 7s"; ran != want {
		t.Errorf("got %s, want %s", ran, want)
	}
	result = pod.ExecResult{ExitCode: 3, Output: []byte("no such file")}
	expectAnswer(t, "exit code 3", h.run(t.Context(), j), failure, "no such file")
	result.Output = make([]byte, 1<<20)
	if got := h.run(t.Context(), j); len(got.message) != 10<<10 {
		t.Errorf("got %d bytes of output, want 10 KiB", len(got.message))
	}
	err = fmt.Errorf("exec: %w", pod.ErrTimeout)
	expectAnswer(t, "timeout", h.run(t.Context(), execJob(sec, "sleep", "60")), failure, `command timed out: "sleep 60" timed out after 1s`)
	err = errors.New(`exec: "nosuch": executable file not found in $PATH`)
	expectAnswer(t, "no command", h.run(t.Context(), j), unknown, "executable file not found")
}

// TestCommandsThatHangHoldUpNoOther: with a slot for one command at a time, ten
// that hang delay the next by a moment each at most.
func TestCommandsThatHangHoldUpNoOther(t *testing.T) {
	inBubble(t, func(b *bench) {
		h := newHandlers(execs(func(ctx context.Context, id string, _ []string, timeout time.Duration) (pod.ExecResult, error) {
			if strings.HasPrefix(id, "hung") {
				<-ctx.Done() // and the runtime does not keep the timeout either
				return pod.ExecResult{}, ctx.Err()
			}
			time.Sleep(20 * time.Millisecond)
			return pod.ExecResult{}, nil
		}), newGate(1))
		b.by(h.run)
		command := func(p *v1.Probe) {
			p.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
		}
		for i := range 10 {
			b.sync(aPod(pod.UID(fmt.Sprint("h", i)), nil, with(every(30), func(p *v1.Probe) { command(p); p.TimeoutSeconds = 20 }), nil), fmt.Sprint("hung", i))
		}
		b.sync(aPod("a", nil, with(every(30), command), nil), "a1")
		b.at(11 * sec)
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: ok})
		b.at(22 * sec)
		b.expectEvents() // what fails in a container's first second is no event
		b.at(130 * sec)
		b.expect("h3", "web", pod.Probes{ContainerID: "hung3", Ready: bad})
		b.expect("a", "web", pod.Probes{ContainerID: "a1", Ready: ok})
	})
}

func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	services := health.NewServer()
	services.SetServingStatus("db", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, services)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	h := newHandlers(nil, newGate(1))
	try := func(port int, service *string, timeout time.Duration) attemptResult {
		j := httpJob(0, "", timeout)
		j.probe = &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(port), Service: service}}}
		return h.run(t.Context(), j)
	}
	db, other := "db", "other"
	port := portOf(t, l.Addr().String())
	expectAnswer(t, "serving", try(port, nil, 10*sec), success, "service healthy")
	expectAnswer(t, "not serving", try(port, &db, 10*sec), failure, `service unhealthy (responded with "NOT_SERVING")`)
	expectAnswer(t, "unknown service", try(port, &other, 10*sec), failure,
		"error: health rpc probe failed: rpc error: code = NotFound desc = unknown service")

	bare := grpc.NewServer()
	l2, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = bare.Serve(l2) }()
	defer bare.Stop()
	expectAnswer(t, "no health service", try(portOf(t, l2.Addr().String()), nil, 10*sec), failure,
		"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health")

	hung := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		<-s.Context().Done()
		return status.FromContextError(s.Context().Err()).Err()
	}))
	l3, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = hung.Serve(l3) }()
	defer hung.Stop()
	expectAnswer(t, "hangs", try(portOf(t, l3.Addr().String()), nil, 300*time.Millisecond), failure,
		"timeout: health rpc did not complete within 300ms")

	expectAnswer(t, "refused", try(1, nil, 300*time.Millisecond), failure,
		`timeout: failed to connect service "127.0.0.1:1" within 300ms: context deadline exceeded`)
	expectAnswer(t, "refused, and why", try(1, nil, 300*time.Millisecond), failure, "connection refused")
	// An attempt that the end of the time breaks off took the reason away.
	expectAnswer(t, "refused up to the end", try(1, nil, reconnect+time.Millisecond), failure, "context deadline exceeded (dial tcp 127.0.0.1:1: connect: connection refused)")
	end := make(chan struct{})
	var calls atomic.Int32
	turning := raw(t, func(c net.Conn) {
		if calls.Add(1) > 1 {
			<-end
		}
	})
	expectAnswer(t, "hung up on, then silent", try(turning, nil, reconnect+200*time.Millisecond), failure, "context deadline exceeded (")
	silent := raw(t, func(c net.Conn) { <-end })
	expectAnswer(t, "silent", try(silent, nil, 300*time.Millisecond), failure, "timeout: failed to connect service")
	close(end)
	web := raw(t, func(c net.Conn) { fmt.Fprint(c, strings.Repeat("HTTP/1.1 400 Bad Request\r\n\r\n", 10000)) })
	expectAnswer(t, "no gRPC", try(web, nil, 300*time.Millisecond), failure, "failed")
}

func TestAProbeWithoutAHandlerIsAnError(t *testing.T) {
	j := httpJob(0, "", sec)
	j.probe = &v1.Probe{}
	expectAnswer(t, "none", newHandlers(nil, newGate(1)).run(t.Context(), j), unknown, "missing probe handler")
}
