package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/agent"
	"podd/internal/pod"
	"podd/status"
)

// TestPodsShowBeforeTheRuntimeIsGreeted: desired pods are shown as waiting, with the
// reason, and run with the parts that AwaitRuntime returns.
func TestPodsShowBeforeTheRuntimeIsGreeted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(newFakeRuntime(t))
		c := &conn{fakeRuntime: n.fakeRuntime, dead: make(chan struct{})}
		var responded atomic.Bool
		writer := status.NewWriter(status.Config{})
		a := agent.New(agent.Config{
			AwaitRuntime: func(ctx context.Context) (agent.Parts, error) {
				if !responded.Load() {
					return agent.Parts{}, fmt.Errorf("list pods: %w", pod.ErrUnavailable)
				}
				return agent.Parts{Observer: c, Inputs: inputs{n}, Sandboxes: c, Containers: c, Images: n, Volumes: disk{n}, Cgroups: n, Files: n}, nil
			},
			Logs: n, Status: writer, Events: n, Sources: []pod.Source{pod.SourceFile},
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: prometheus.NewRegistry(),
		})
		shown := func() *v1.Pod {
			for _, p := range writer.Pods() {
				return p
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		updates, done := make(chan pod.Update), make(chan error, 1)
		go func() { done <- a.Run(ctx, updates) }()
		p := &v1.Pod{}
		p.Name, p.Namespace, p.UID = "shop", "default", "u1"
		p.Spec.Containers = []v1.Container{{Name: "web", Image: "localhost/podd/web:1"}}
		updates <- pod.Update{Op: pod.OpAdd, Source: pod.SourceFile, Pods: []*pod.Desired{{Source: pod.SourceFile, Pod: p}}}
		time.Sleep(10 * time.Second)
		got := shown()
		if got == nil || got.Status.Phase != v1.PodPending {
			t.Fatalf("before the greeting: got %v, want a pending pod", got)
		}
		if w := got.Status.ContainerStatuses[0].State.Waiting; w == nil || !strings.Contains(w.Message, pod.ErrUnavailable.Error()) {
			t.Errorf("before the greeting: got %v, want that the runtime is away", w)
		}
		if err := a.Healthy(t.Context()); err != nil {
			t.Errorf("before the greeting: the sync loop is not healthy: %v", err)
		}
		responded.Store(true)
		time.Sleep(10 * time.Second)
		if got := shown(); got.Status.Phase != v1.PodRunning {
			t.Errorf("after the greeting: got %s, want Running", got.Status.Phase)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
