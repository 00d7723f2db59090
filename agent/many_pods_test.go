package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/agent"
	"podd/cri"
	"podd/cri/critest"
	"podd/cri/spec"
	"podd/internal/perftest"
	"podd/internal/pod"
	"podd/pleg"
	"podd/podenv"
	"podd/podfs"
	"podd/status"
)

const (
	manyPods  = 300
	slowCall  = 5 * time.Millisecond
	testImage = "localhost/podd/busybox:1"
)

// TestThreeHundredPods runs the agent with the real CRI client and the real
// status writer against a runtime on a socket whose every call takes 5 ms. What
// they cost is measured on the real binary, in cmd/podd.
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
	m.await(t, "all pods are Running", patience, func() bool { return m.running() == manyPods })
	t.Logf("%d pods Running after %v, runtime calls: %d", manyPods, time.Since(began).Round(time.Millisecond), len(m.srv.Calls()))

	t.Run("ask the runtime nothing while nothing happens", func(t *testing.T) {
		m.settle(t, 3*time.Second) // the relister lists once more when its stream is certainly open
		calls := len(m.srv.Calls())
		time.Sleep(5 * time.Second)
		if n := len(m.srv.Calls()) - calls; n > 2 { // what a relist is that happens to be due
			t.Errorf("idle: %d calls %v", n, m.srv.Calls()[calls:])
		}
	})
	t.Run("one crash is answered without a wait", func(t *testing.T) {
		_, calls := m.crash(t, "c1")
		next := 0
		got := perftest.Compare(9, 2, func() time.Duration {
			next += 6 // each time another one, also if what misses its bar is measured for longer: a second crash has a back-off
			took, n := m.crash(t, fmt.Sprintf("c%d", next))
			calls = n
			return took
		}, func() time.Duration { return m.srv.Bare(calls) })
		t.Logf("from a container's end to its successor's start, %d calls: %v", calls, got)
		if r := got.Ratio(); r > 2 {
			t.Errorf("a crash is answered after %.2f times what its calls take: something waits", r)
		}
	})
	if n := len(m.status.Pods()); n != manyPods {
		t.Errorf("status has %d pods, want %d", n, manyPods)
	}
}

// many is the agent, wired, and its runtime.
type many struct {
	srv     *critest.Server
	agent   *agent.Agent
	image   string
	status  *status.Writer
	updates chan pod.Update
	dirs    podfs.Dirs // of this life
	stop    func()
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
	m.dirs = podfs.Dirs{Root: dir, PodLogs: filepath.Join(dir, "logs"), ContainerLogs: filepath.Join(dir, "links")}
	files := podfs.New(m.dirs, log)
	conn, err := cri.Connect(m.srv.Endpoint(), 0, log, reg)
	if err != nil {
		t.Fatal(err)
	}
	client := cri.NewClient(conn, spec.Options{Dirs: m.dirs})
	m.status = status.NewWriter(status.Config{Log: log, Metrics: reg})
	cfg := agent.Config{
		Parts: agent.Parts{Observer: client, Inputs: podenv.New(podenv.Config{NodeName: "n"}), Sandboxes: client, Containers: client, Images: present{ref: m.image}, Volumes: noVolumes{}, Cgroups: noVolumes{}, Files: files},
		Logs:  files, Status: m.status, Events: noVolumes{}, Sources: []pod.Source{pod.SourceFile}, Log: log, Metrics: reg,
	}
	for _, e := range edit {
		e(&cfg)
	}
	a := agent.New(cfg)
	m.agent = a
	relister := pleg.New(pleg.Config{Waker: a, OnRecovery: a.WakeAll, Log: log, Metrics: reg})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.Run(ctx, m.updates) })
	wg.Go(func() { _ = relister.Run(ctx, client) })
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
	m.await(t, "the runtime is left alone", patience, func() bool {
		if n := len(m.srv.Calls()); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > quiet
	})
}

// crash ends a container and says how long it took until another ran, by the
// runtime's own clock, and how many calls were made until then.
func (m *many) crash(t *testing.T, container string) (took time.Duration, calls int) {
	t.Helper()
	m.settle(t, 200*time.Millisecond)
	m.srv.ResetCalls()
	began := time.Now()
	m.srv.Exit(container, 1)
	var started time.Time
	m.await(t, container+" is restarted", patience, func() bool {
		for _, c := range m.srv.RunningContainers() {
			if c.Name == container && c.Started.After(began) {
				started = c.Started
			}
		}
		return !started.IsZero()
	})
	for _, c := range m.srv.Calls() {
		if c.At.Before(started) {
			calls++
		}
	}
	return started.Sub(began), calls
}

func (m *many) await(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s; %d pods are Running", limit, what, m.running())
		}
	}
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

func (noVolumes) Ensure(context.Context, *v1.Pod) (pod.VolumeState, error) {
	return pod.VolumeState{Ready: true}, nil
}

func (noVolumes) Follow(*v1.Pod)                     {}
func (noVolumes) Stopping(pod.UID)                   {}
func (noVolumes) Hold(*v1.Pod, *v1.Container) func() { return func() {} }

func (noVolumes) Mounts(*v1.Pod, *v1.Container, []string) ([]pod.Mount, error) { return nil, nil }
func (noVolumes) Devices(*v1.Pod, *v1.Container) ([]pod.Device, error)         { return nil, nil }
func (noVolumes) AbortRequests(context.Context, pod.UID, func(string))         {}
func (noVolumes) TearDown(context.Context, pod.UID) error                      { return nil }
func (noVolumes) EnsureCgroup(context.Context, *v1.Pod) error                  { return nil }
func (noVolumes) RemoveCgroup(context.Context, *v1.Pod) error                  { return nil }
func (noVolumes) Release(context.Context, pod.UID) error                       { return nil }
func (noVolumes) Discard(context.Context, pod.UID) error                       { return nil }
func (noVolumes) Pods() ([]pod.UID, error)                                     { return nil, nil }
func (noVolumes) HasProcesses(pod.UID) (bool, error)                           { return false, nil }
func (noVolumes) KillLeftover(pod.UID, []string) error                         { return nil }
func (noVolumes) LostContainers(pod.UID, []string) ([]string, error)           { return nil, nil }
func (noVolumes) OrphanedPods(context.Context, []pod.UID) ([]pod.UID, error)   { return nil, nil }
func (noVolumes) Event(p *v1.Pod, eventType, reason, message string)           {}
func (noVolumes) ForgetPod(pod.UID)                                            {}
func (noVolumes) ContainerEvent(p *v1.Pod, container, eventType, reason, message string) {
}
