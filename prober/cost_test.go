package prober

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podd/internal/pod"
)

// targetsEnv has this test binary be the servers that are probed: in a process
// of their own, so that what they cost is not the prober's.
const targetsEnv = "PODD_TEST_PROBE_TARGETS"

func TestMain(m *testing.M) {
	if os.Getenv(targetsEnv) != "" {
		serveTargets()
		return
	}
	os.Exit(m.Run())
}

// serveTargets prints the ports of an HTTP and a gRPC server, and serves until
// its standard input ends.
func serveTargets() {
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	rpc, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		_ = http.Serve(web, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
	}()
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(rpc) }()
	fmt.Println(web.Addr().(*net.TCPAddr).Port, rpc.Addr().(*net.TCPAddr).Port)
	var end [1]byte
	_, _ = os.Stdin.Read(end[:])
}

// startTargets runs serveTargets.
func startTargets(t testing.TB) (web, rpc int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), targetsEnv+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	if _, err := fmt.Fscan(stdout, &web, &rpc); err != nil {
		t.Fatal(err)
	}
	return web, rpc
}

func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type counting struct{ wakes, events atomic.Int64 }

func (c *counting) Wake(pod.UID)                                           { c.wakes.Add(1) }
func (c *counting) ContainerEvent(*v1.Pod, string, string, string, string) { c.events.Add(1) }

// TestFiveHundredProbesASecondCostLessThanATenthOfACore measures the whole
// prober against real servers in another process.
func TestFiveHundredProbesASecondCostLessThanATenthOfACore(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("measures processor time")
	}
	web, rpc := startTargets(t)
	const rate = 500
	for _, c := range []struct {
		name  string
		probe v1.ProbeHandler
	}{
		{"tcp", v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(int32(web))}}},
		{"http", v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(int32(web))}}},
		{"grpc", v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(rpc)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			share, runs := measure(t, c.probe, rate)
			t.Logf("%.0f probes a second: %.3f of a core, %.0f µs each", runs, share, share/runs*1e6)
			if runs == 0 {
				t.Fatalf("got less than 90 %% of %d probes a second", rate)
			}
			most := 0.1
			if load := loadAverage(); load > float64(runtime.NumCPU()) {
				t.Logf("the load is %.1f: the same work takes more time", load)
				most = 0.2
			}
			if per500 := share / runs * rate; per500 > most {
				t.Errorf("500 probes a second take %.3f of a core, want at most %.2f", per500, most)
			}
		})
	}
}

// measure probes with rate probes, one a second each, and returns the share of a
// core and the runs a second: those of the cheapest of several spans, as others
// use the machine too and their traces in its caches are not the prober's cost.
func measure(t *testing.T, handler v1.ProbeHandler, rate int) (share, runs float64) {
	var asked atomic.Int64
	notes := &counting{}
	p := New(Config{Waker: notes, Events: notes, Log: slog.New(slog.DiscardHandler)})
	real := p.ask
	p.ask = func(ctx context.Context, j job) answer {
		a := real(ctx, j)
		if a.outcome() == pod.ProbeSucceeded {
			asked.Add(1)
		}
		return a
	}
	for i := range rate {
		name := "pod" + strconv.Itoa(i)
		spec := &v1.Pod{}
		spec.Name, spec.Namespace, spec.UID = name, "default", pod.UID(name)
		spec.Spec.Containers = []v1.Container{{Name: "web", ReadinessProbe: &v1.Probe{
			ProbeHandler: handler, PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
		}}}
		p.Sync(spec, "127.0.0.1", []pod.ProbeTarget{{
			Container: &spec.Spec.Containers[0], ContainerID: name, StartedAt: time.Now().Add(-time.Hour),
		}}, false)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	time.Sleep(2500 * time.Millisecond) // all have run
	for range 4 {
		began, cpu, count := time.Now(), processTime(), asked.Load()
		time.Sleep(time.Second)
		took := time.Since(began).Seconds()
		s, r := (processTime()-cpu).Seconds()/took, float64(asked.Load()-count)/took
		if r > 0.9*float64(rate) && (runs == 0 || s/r < share/runs) {
			share, runs = s, r
		}
	}
	stop()
	<-done
	if n := notes.events.Load(); n > 0 {
		t.Errorf("got %d events of failed probes, want none", n)
	}
	return share, runs
}

// loadAverage is the last minute's.
func loadAverage() (load float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	if err != nil {
		return 0
	}
	return load
}
