package prober

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podd/internal/perftest"
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

// serveTargets prints the port of an HTTP server, and serves until
// its standard input ends.
func serveTargets() {
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		_ = http.Serve(web, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
	}()
	fmt.Println(web.Addr().(*net.TCPAddr).Port)
	var end [1]byte
	_, _ = os.Stdin.Read(end[:])
}

// startTargets runs serveTargets.
func startTargets(t testing.TB) (web int) {
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
	if _, err := fmt.Fscan(stdout, &web); err != nil {
		t.Fatal(err)
	}
	return web
}

type counting struct{ wakes, events atomic.Int64 }

func (c *counting) Wake(pod.UID)                                           { c.wakes.Add(1) }
func (c *counting) ContainerEvent(*v1.Pod, string, string, string, string) { c.events.Add(1) }

// TestAProbeOfEachKindCostsAboutWhatItsRequestCosts compares the prober's processor
// time, by turns, with that of a loop which makes the same connections or requests
// with the libraries a Go program has for them, and keeps no results. The targets
// are in another process.
func TestAProbeOfEachKindCostsAboutWhatItsRequestCosts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	web := startTargets(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, c := range []struct {
		name  string
		probe v1.ProbeHandler
		bare  func() error
		most  float64
	}{
		{"tcp", v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(int32(web))}}, func() error {
			conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", web))
			if err == nil {
				err = conn.Close()
			}
			return err
		}, 2}, // a bare connection is little, and the prober's own share of it much
		{"http", v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(int32(web))}}, func() error {
			resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", web))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				err = errors.Join(err, resp.Body.Close())
			}
			return err
		}, 1.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			const rate = 100
			got := perftest.Compare(3, c.most, func() time.Duration { return probing(t, c.probe, rate) }, func() time.Duration {
				return perRun(t, func(asked *atomic.Int64) func(context.Context) {
					return func(ctx context.Context) { atPace(ctx, t, rate, asked, c.bare) }
				})
			})
			t.Logf("processor time of one: %v", got)
			if r := got.Ratio(); r > c.most {
				t.Errorf("a probe costs %.2f times its bare request, want %.2f times at most", r, c.most)
			}
		})
	}
}

// perRun runs it until it has settled and a span was measured, and says what one
// of what it counts took of the processor.
func perRun(t *testing.T, make func(asked *atomic.Int64) (run func(context.Context))) time.Duration {
	var asked atomic.Int64
	run := make(&asked)
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { run(ctx) })
	defer func() { stop(); done.Wait() }()
	time.Sleep(1500 * time.Millisecond) // each has run
	count, cpu := asked.Load(), processorTime(t)
	time.Sleep(2 * time.Second)
	cpu, count = processorTime(t)-cpu, asked.Load()-count
	if count == 0 {
		t.Fatal("nobody asked")
	}
	return cpu / time.Duration(count)
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	d, err := perftest.CPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// atPace does it rate times a second, each in a goroutine with a second of its own.
func atPace(ctx context.Context, t *testing.T, rate int, asked *atomic.Int64, do func() error) {
	var all sync.WaitGroup
	for i := range rate {
		all.Go(func() {
			next := time.NewTimer(time.Duration(i) * time.Second / time.Duration(rate))
			defer next.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-next.C:
					next.Reset(time.Second)
				}
				if err := do(); err != nil {
					t.Errorf("a bare request: %v", err)
				}
				asked.Add(1)
			}
		})
	}
	all.Wait()
}

// probing is what a probe takes, with rate of them, one a second each.
func probing(t *testing.T, handler v1.ProbeHandler, rate int) time.Duration {
	notes := &counting{}
	took := perRun(t, func(asked *atomic.Int64) func(context.Context) {
		p := New(Config{Waker: notes, Events: notes, Log: slog.New(slog.DiscardHandler)})
		real := p.runHandler
		p.runHandler = func(ctx context.Context, j job) attemptResult {
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
				ProbeHandler: handler, PeriodSeconds: 1, TimeoutSeconds: 60, SuccessThreshold: 1, FailureThreshold: 3,
			}}}
			p.Sync(spec, "127.0.0.1", []pod.ProbeTarget{{
				Container: &spec.Spec.Containers[0], ContainerID: name, StartedAt: time.Now().Add(-time.Hour),
			}}, false)
		}
		return func(ctx context.Context) { _ = p.Run(ctx) }
	})
	if n := notes.events.Load(); n > 0 {
		t.Errorf("got %d events of failed probes, want none", n)
	}
	return took
}
