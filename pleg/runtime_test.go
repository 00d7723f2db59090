package pleg_test

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/cri"
	"podd/cri/critest"
	"podd/cri/spec"
	"podd/internal/pod"
	"podd/pleg"
	"podd/podfs"
)

type counter struct {
	mu sync.Mutex
	n  map[pod.UID]int
}

func (c *counter) Wake(uid pod.UID, _ time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[uid]++
}

func (c *counter) of(uid pod.UID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[uid]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestExitIsSeenThroughRestartsOfTheRuntime runs the real client against a
// runtime on a socket: by event, with all events lost, and across a restart.
func TestExitIsSeenThroughRestartsOfTheRuntime(t *testing.T) {
	srv := critest.New(t)
	image := srv.AddImage("localhost/podd/busybox:1")
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	conn, err := cri.Connect(srv.Endpoint(), 0, log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	client := cri.NewClient(conn, spec.Options{
		Dirs: podfs.Dirs{Root: dir, PodLogs: filepath.Join(dir, "pods"), ContainerLogs: filepath.Join(dir, "containers")},
	})
	defer client.Close()
	start := func(name string) pod.UID {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: pod.UID("uid-" + name)}, Spec: v1.PodSpec{
			DNSPolicy: v1.DNSNone, Containers: []v1.Container{{Name: name, Image: "localhost/podd/busybox:1"}},
		}}
		id, err := client.RunSandbox(t.Context(), pod.SandboxRequest{Pod: p})
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.CreateContainer(t.Context(), pod.ContainerRequest{Pod: p, Container: &p.Spec.Containers[0], Sandbox: pod.Sandbox{ID: id}, Image: pod.ImageState{Ref: image}})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.StartContainer(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return p.UID
	}
	a, b, c := start("a"), start("b"), start("c")
	wakes := &counter{n: map[pod.UID]int{}}
	r := pleg.New(pleg.Config{Waker: wakes, Log: log, Metrics: prometheus.NewRegistry()})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, client) }()
	defer func() { stop(); <-ended }()
	eventually(t, "the first relist", func() bool { return wakes.of(a) > 0 && wakes.of(b) > 0 && wakes.of(c) > 0 && srv.Listeners() == 1 })
	time.Sleep(2500 * time.Millisecond) // past the relist that follows an opened stream

	before, lists := wakes.of(a), srv.Count("ListContainers")
	srv.Exit("a", 1)
	eventually(t, "the exit of a", func() bool { return wakes.of(a) > before })
	if n := srv.Count("ListContainers") - lists; n > 0 {
		t.Errorf("the exit was found by %d relists, want it told by event", n)
	}

	before = wakes.of(b)
	srv.LoseEvents(true)
	srv.Exit("b", 1)
	srv.LoseEvents(false)
	srv.DropStreams()
	eventually(t, "the exit of b, whose event was lost with the stream", func() bool { return wakes.of(b) > before })
	eventually(t, "the stream is open again", func() bool { return srv.Listeners() == 1 })

	before = wakes.of(c)
	srv.Stop()
	srv.Exit("c", 1)
	srv.Start()
	eventually(t, "the exit of c while the runtime was away", func() bool { return wakes.of(c) > before })
	if err := r.Healthy(); err != nil {
		t.Error(err)
	}
}
