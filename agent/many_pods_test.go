package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/agent"
	"podd/cri"
	"podd/cri/critest"
	"podd/internal/pod"
	"podd/pleg"
	"podd/status"
)

const (
	manyPods  = 300
	slowCall  = 5 * time.Millisecond
	testImage = "localhost/podd/busybox:1"
)

// idleWindow is how long the pods are left alone while podd's processor time
// is measured: PODD_IDLE=60s for the full minute.
func idleWindow(t *testing.T) time.Duration {
	if s := os.Getenv("PODD_IDLE"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	return 5 * time.Second
}

// TestThreeHundredPods runs the agent with the real CRI client and the real
// status writer against a runtime on a socket whose every call takes 5 ms. The
// runtime is in this process, and its processor time counts as podd's.
func TestThreeHundredPods(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	m := startMany(t)
	began := time.Now()
	u := pod.Update{Op: pod.OpAdd, Source: pod.SourceFile}
	for i := range manyPods {
		u.Pods = append(u.Pods, manyPod(i))
	}
	m.updates <- u
	m.await(t, "all pods are Running", 2*time.Minute, func() bool { return m.running() == manyPods })
	t.Logf("%d pods Running after %v, runtime calls: %d", manyPods, time.Since(began).Round(time.Millisecond), len(m.srv.Calls()))

	t.Run("cost nothing while nothing happens", func(t *testing.T) {
		window := idleWindow(t)
		m.settle(t, 3*time.Second) // the relister looks once more when its stream is surely open
		calls, before := len(m.srv.Calls()), cpuTime(t)
		time.Sleep(window)
		used := cpuTime(t) - before
		share := float64(used) / float64(window)
		t.Logf("idle %v: %v of processor time, %.2f %% of a core, %d runtime calls", window, used, 100*share, len(m.srv.Calls())-calls)
		if share > 0.01 {
			t.Errorf("idle: %.2f %% of a core, want less than 1 %%", 100*share)
		}
	})
	t.Run("one crash is answered within 50 ms", func(t *testing.T) {
		var took []time.Duration
		for i := range 9 {
			took = append(took, m.crash(t, fmt.Sprintf("c%d", 30*i)))
		}
		slices.Sort(took)
		t.Logf("from a container's end to its successor's start: %v", took)
		if median := took[len(took)/2]; median > 50*time.Millisecond {
			t.Errorf("median %v, want less than 50 ms", median)
		}
	})
	if n := len(m.status.Pods()); n != manyPods {
		t.Errorf("status has %d pods, want %d", n, manyPods)
	}
}

// many is the agent, wired, and its runtime.
type many struct {
	srv     *critest.Server
	image   string
	status  *status.Writer
	updates chan pod.Update
	stop    func() // of this life
}

// slow are the calls that take slowCall.
var slow = []string{"RunPodSandbox", "PodSandboxStatus", "ListPodSandbox", "CreateContainer", "StartContainer",
	"ContainerStatus", "ListContainers", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox", "StopContainer"}

// startMany runs the agent against a runtime on a socket, through the real
// client, the real writer of statuses and the real relister.
func startMany(t *testing.T, edit ...func(*agent.Config)) *many {
	t.Helper()
	srv := critest.New(t)
	m := &many{srv: srv, image: srv.AddImage(testImage), updates: make(chan pod.Update)}
	for _, call := range slow {
		srv.Delay(call, slowCall)
	}
	m.run(t, edit...)
	return m
}

// run begins a life of podd, which stop ends.
func (m *many) run(t *testing.T, edit ...func(*agent.Config)) {
	t.Helper()
	dir, log, reg := t.TempDir(), slog.New(slog.NewTextHandler(io.Discard, nil)), prometheus.NewRegistry()
	client, err := cri.Dial(t.Context(), m.srv.Endpoint(), cri.Options{
		RootDir: dir, PodLogsDir: filepath.Join(dir, "logs"), ContainerLogsDir: filepath.Join(dir, "links"), NodeName: "n",
	}, log, reg)
	if err != nil {
		t.Fatal(err)
	}
	m.status = status.NewWriter(status.Config{Log: log, Metrics: reg})
	cfg := agent.Config{
		Observer: client, Sandboxes: client, Containers: client, Images: present{ref: m.image}, Volumes: noVolumes{}, Cgroups: noVolumes{},
		Logs: noVolumes{}, Status: m.status, Events: noVolumes{}, Sources: []pod.Source{pod.SourceFile}, Log: log, Metrics: reg,
	}
	for _, e := range edit {
		e(&cfg)
	}
	a := agent.New(cfg)
	relister := pleg.New(pleg.Config{Runtime: client, Waker: a, Recovered: a.WakeAll, Log: log, Metrics: reg})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.Run(ctx, m.updates) })
	wg.Go(func() { _ = relister.Run(ctx) })
	m.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		_ = client.Close()
	})
	t.Cleanup(m.stop)
}

func manyPod(i int) *pod.Desired {
	name := fmt.Sprintf("p%d", i)
	return &pod.Desired{Source: pod.SourceFile, Seen: time.Now(), Pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: pod.UID("uid-" + name)},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault,
			Containers: []v1.Container{{
				Name: fmt.Sprintf("c%d", i), Image: testImage,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
	}}
}

func (m *many) running() int {
	n := 0
	for _, p := range m.status.Pods() {
		if p.Status.Phase == v1.PodRunning {
			n++
		}
	}
	return n
}

// settle waits until the runtime is asked nothing any more for that long.
func (m *many) settle(t *testing.T, quiet time.Duration) {
	t.Helper()
	last, since := -1, time.Now()
	m.await(t, "the runtime is left alone", time.Minute, func() bool {
		if n := len(m.srv.Calls()); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > quiet
	})
}

// crash ends a container and says how long it took until another ran.
func (m *many) crash(t *testing.T, container string) time.Duration {
	t.Helper()
	m.settle(t, 200*time.Millisecond)
	starts := m.srv.Count("StartContainer")
	began := time.Now()
	m.srv.Exit(container, 1)
	for m.srv.Count("StartContainer") == starts {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%s is not restarted", container)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began) + slowCall // the start itself
}

func (m *many) await(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s; %d pods are Running", limit, what, m.running())
		}
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// present has every image.
type present struct{ ref string }

func (p present) Ensure(context.Context, *v1.Pod, *v1.Container) (pod.ImageState, error) {
	return pod.ImageState{Ready: true, Ref: p.ref}, nil
}
func (present) Forget(pod.UID) {}
func (present) Retry(pod.UID)  {}

// noVolumes is a disk on which nothing has to be done.
type noVolumes struct{}

func (noVolumes) SetUp(context.Context, *v1.Pod) error               { return nil }
func (noVolumes) Mounts(*v1.Pod, *v1.Container) ([]pod.Mount, error) { return nil, nil }
func (noVolumes) TearDown(context.Context, pod.UID) error            { return nil }
func (noVolumes) EnsureCgroup(context.Context, *v1.Pod) error        { return nil }
func (noVolumes) RemoveCgroup(context.Context, *v1.Pod) error        { return nil }
func (noVolumes) Release(context.Context, pod.UID) error             { return nil }
func (noVolumes) Pods() ([]pod.UID, error)                           { return nil, nil }
func (noVolumes) Leftover([]pod.UID) ([]pod.UID, error)              { return nil, nil }
func (noVolumes) RemoveLogs(*v1.Pod) error                           { return nil }
func (noVolumes) Event(p *v1.Pod, eventType, reason, message string) {}
func (noVolumes) ContainerEvent(p *v1.Pod, container, eventType, reason, message string) {
}
