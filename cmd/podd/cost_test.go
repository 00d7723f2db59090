package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/cri/critest"
	"podd/internal/perftest"
)

// TestAPodStartsInSoManyCalls bounds the runtime calls of a pod's start, so that
// they do not grow unnoticed: each takes podd and the runtime a fraction of a
// millisecond, and those before the last start delay the pod.
func TestAPodStartsInSoManyCalls(t *testing.T) {
	d := newDaemon(t, 0)
	for i := range 3 {
		d.srv.Script(fmt.Sprintf("init-%d", i), critest.Script{ExitAfter: 20 * time.Millisecond})
	}
	d.start()
	d.await("podd responds", func() bool { return d.pods() != nil })
	d.write("warm")
	d.await("the first pod runs", func() bool { return d.running() == 1 })
	d.settle(3 * time.Second) // pleg relists once more when its event stream is certainly open

	image := "image: " + testImage
	for i, c := range []struct {
		name, spec string
		most       int // calls; one more sync than usual takes 2
		makes      int // containers
	}{
		{"one", "containers: [{name: one, " + image + "}]", 12 + 2, 1},
		{"two", "containers: [{name: two-a, " + image + "}, {name: two-b, " + image + "}]", 16 + 2, 2},
		{"init", "initContainers: [{name: init-0, " + image + "}, {name: init-1, " + image + "}, {name: init-2, " + image +
			"}]\n  containers: [{name: init, " + image + "}]", 39 + 4, 4},
	} {
		d.srv.ResetCalls()
		d.put(c.name, "apiVersion: v1\nkind: Pod\nmetadata: {name: "+c.name+"}\nspec:\n  dnsPolicy: Default\n  "+c.spec+"\n")
		d.await(c.name+" runs", func() bool { return d.running() == i+2 })
		d.settle(500 * time.Millisecond)
		got := map[string]int{}
		for _, call := range d.srv.Calls() {
			got[call.Method]++
		}
		t.Logf("%s: %d calls, %v", c.name, d.srv.Count(""), got)
		if got["RunPodSandbox"] != 1 || got["CreateContainer"] != c.makes || got["StartContainer"] != c.makes || got["ImageStatus"] > c.makes {
			t.Errorf("%s: want one sandbox, and one create, one start and one image lookup for each of %d containers", c.name, c.makes)
		}
		if n := d.srv.Count(""); n > c.most {
			t.Errorf("%s: %d calls, want %d at most", c.name, n, c.most)
		}
	}
}

// TestAProbeCostsAQuarterMoreThanABareRequestAtMost runs the real binary with
// fifty pods of ten containers, each with a readiness probe every second, and
// compares its CPU time with that of a client that makes the same five hundred
// requests with Go's HTTP client and does nothing else.
func TestAProbeCostsAQuarterMoreThanABareRequestAtMost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	const pods, containers = 50, 10
	d := newDaemon(t, 0)
	target := serveBare(t, d.dir)
	probe := fmt.Sprintf("{periodSeconds: 1, failureThreshold: 1000, httpGet: {host: 127.0.0.1, port: %d, path: /podd}}", target.port)
	for i := range pods {
		var list strings.Builder
		for j := range containers {
			fmt.Fprintf(&list, "  - {name: c%d, image: %q, readinessProbe: %s}\n", j, testImage, probe)
		}
		name := fmt.Sprintf("p%d", i)
		d.put(name, "apiVersion: v1\nkind: Pod\nmetadata: {name: "+name+"}\nspec:\n  dnsPolicy: Default\n  containers:\n"+list.String())
	}
	const span = 3 * time.Second
	var asked [2][]float64 // by podd and by the bare client, per round
	each := func(pid, whose int) time.Duration {
		runs, cpu := target.counts(t)[whose], processor(t, pid)
		time.Sleep(span)
		cpu, runs = processor(t, pid)-cpu, target.counts(t)[whose]-runs
		if runs == 0 {
			t.Fatalf("no requests within %v", span)
		}
		asked[whose] = append(asked[whose], float64(runs)/span.Seconds())
		return cpu / time.Duration(runs)
	}
	got := perftest.Compare(3, 1.25, func() time.Duration {
		d.start()
		d.await("all pods are ready", func() bool { return d.ready() == pods })
		d.settle(2 * time.Second)
		defer d.stop()
		return each(d.cmd.Process.Pid, 0)
	}, func() time.Duration {
		pid, stop := target.ask(t, pods*containers)
		defer stop()
		time.Sleep(2500 * time.Millisecond) // each probe has run once
		return each(pid, 1)
	})
	t.Logf("CPU time of one probe: %v; probes a second %.0f, requests of the bare client %.0f", got, asked[0], asked[1])
	if r := got.Ratio(); r > 1.25 {
		t.Errorf("a probe costs %.2f times a bare request, want 1.25 times at most", r)
	}
	if os.Getenv("PODD_BENCH") != "" { // a quiet machine
		slices.Sort(got.Subject)
		share := pods * containers * got.Subject[len(got.Subject)/2].Seconds()
		t.Logf("%d probes a second take %.3f of a core", pods*containers, share)
		if share > 0.1 {
			t.Errorf("%d probes a second take %.3f of a core, want a tenth at most", pods*containers, share)
		}
	}
	slices.Sort(asked[0])
	slices.Sort(asked[1])
	if got, want := asked[0][len(asked[0])/2], asked[1][len(asked[1])/2]; got < 0.8*want {
		t.Errorf("got %.0f probes a second, where a bare client got %.0f requests through", got, want)
	}
}

// bareServer is testdata/bare, built as podd is, without the race detector.
type bareServer struct {
	binary string
	port   int
	in     io.Writer
	out    io.Reader
}

func serveBare(t *testing.T, dir string) *bareServer {
	t.Helper()
	b := &bareServer{binary: filepath.Join(dir, "bare")}
	build := exec.Command("go", "build", "-o", b.binary, "./testdata/bare")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build testdata/bare: %v\n%s", err, out)
	}
	cmd := exec.Command(b.binary, "serve")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.out = out
	b.in, _ = b.run(t, cmd)
	if _, err := fmt.Fscanln(b.out, &b.port); err != nil {
		t.Fatal(err)
	}
	return b
}

// run starts it. It exits at the end of its input: by stop, or with the test.
func (b *bareServer) run(t *testing.T, cmd *exec.Cmd) (in io.Writer, stop func()) {
	t.Helper()
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = pipe.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	return pipe, stop
}

// counts returns the requests so far, of podd's probes and of the bare client.
func (b *bareServer) counts(t *testing.T) (n [2]int) {
	t.Helper()
	if _, err := fmt.Fprintln(b.in); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(b.out, &n[0], &n[1]); err != nil {
		t.Fatal(err)
	}
	return n
}

// ask starts a bare client that makes rate requests per second.
func (b *bareServer) ask(t *testing.T, rate int) (pid int, stop func()) {
	t.Helper()
	cmd := exec.Command(b.binary, "ask", strconv.Itoa(b.port), strconv.Itoa(rate))
	_, stop = b.run(t, cmd)
	return cmd.Process.Pid, stop
}

func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	d, err := perftest.CPUTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ready returns how many pods are ready.
func (d *daemon) ready() (n int) {
	for _, p := range d.pods() {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				n++
			}
		}
	}
	return n
}
