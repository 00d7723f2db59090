package podsapi

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"podd/internal/pod"
	"podd/internal/wake"
)

// store has pods as the status writer has them: a change is another object.
type store struct {
	changes     wake.Broadcaster
	subscribers atomic.Int32

	mu   sync.Mutex
	pods map[pod.UID]*v1.Pod
}

func (s *store) put(name, uid string, phase v1.PodPhase) {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID, p.Status.Phase = name, "default", pod.UID(uid), phase
	p.Labels = map[string]string{"app": name}
	p.Spec.Containers = []v1.Container{{Name: "main", Env: []v1.EnvVar{{Name: "A", Value: "b"}}}}
	s.mu.Lock()
	s.pods[p.UID] = p
	s.mu.Unlock()
	s.changes.Notify()
}

func (s *store) remove(uid string) {
	s.mu.Lock()
	delete(s.pods, pod.UID(uid))
	s.mu.Unlock()
	s.changes.Notify()
}

func (s *store) Pods() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.pods), func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
}

func (s *store) Pod(uid pod.UID) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[uid]
}

func (s *store) Changes() (<-chan struct{}, func()) {
	s.subscribers.Add(1)
	changes, stop := s.changes.Subscribe()
	return changes, func() { s.subscribers.Add(-1); stop() }
}

type rig struct {
	*store
	*Server
	ready   atomic.Bool
	socket  string
	client  api.PodsClient
	metrics *prometheus.Registry
}

// newRig makes a server of no pods that does not serve.
func newRig(socket string) *rig {
	r := &rig{store: &store{pods: map[pod.UID]*v1.Pod{}}, socket: socket, metrics: prometheus.NewRegistry()}
	r.ready.Store(true)
	r.Server = New(Config{Socket: socket, Pods: r.store, Ready: r.ready.Load, Log: slog.New(slog.DiscardHandler), Metrics: r.metrics})
	return r
}

func serve(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "pa") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := newRig(filepath.Join(dir, "pods-api", "pods-api.sock"))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	conn, err := grpc.NewClient("unix://"+r.socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r.client = api.NewPodsClient(conn)
	return r
}

func decode(t *testing.T, encoded []byte) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	if err := p.Unmarshal(encoded); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPodsAreListedByUIDAndGotWhole(t *testing.T) {
	r := serve(t)
	r.put("web", "2", v1.PodRunning)
	r.put("db", "1", v1.PodPending)
	r.put("api", "3", v1.PodSucceeded)
	list, err := r.client.ListPods(t.Context(), &api.ListPodsRequest{})
	if err != nil || len(list.Pods) != 3 {
		t.Fatalf("got %v, %v", list, err)
	}
	for i, want := range []string{"db", "web", "api"} {
		if p := decode(t, list.Pods[i]); p.Name != want || p.Labels["app"] != want || p.Spec.Containers[0].Env[0].Value != "b" {
			t.Errorf("pod %d: got %v, want all of %s", i, p, want)
		}
	}
	one, err := r.client.GetPod(t.Context(), &api.GetPodRequest{PodUID: "2"})
	if err != nil {
		t.Fatal(err)
	}
	if p := decode(t, one.Pod); p.Name != "web" || p.Status.Phase != v1.PodRunning {
		t.Errorf("got %v", p)
	}
	for uid, want := range map[string]string{"": "pod with UID  not found", "9": "pod with UID 9 not found", strings.Repeat("x", 1000): "xxx… not found"} {
		if _, err := r.client.GetPod(t.Context(), &api.GetPodRequest{PodUID: uid}); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("pod %.10q: got %v, want %q", uid, err, want)
		}
	}
	if info, err := os.Stat(r.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
}

func TestRequestsAreCountedUnderTheKubeletsNames(t *testing.T) {
	r := serve(t)
	r.put("web", "1", v1.PodRunning)
	_, _ = r.client.ListPods(t.Context(), &api.ListPodsRequest{})
	_, _ = r.client.GetPod(t.Context(), &api.GetPodRequest{PodUID: "1"})
	_, _ = r.client.GetPod(t.Context(), &api.GetPodRequest{PodUID: "9"})
	ctx, cancel := context.WithCancel(t.Context())
	events, err := r.client.WatchPods(ctx, &api.WatchPodsRequest{})
	if err == nil {
		_, err = events.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	r.put("one more", "2", v1.PodRunning)
	for r.subscribers.Load() > 0 || testutil.ToFloat64(r.Server.metrics.total.WithLabelValues("v1alpha1", "Canceled")) == 0 { // the server sees the end of a watch later
		if _, err := events.Recv(); err == nil {
			continue
		}
		if t.Context().Err() != nil {
			t.Fatal("the watch does not end")
		}
	}
	if err := testutil.GatherAndCompare(r.metrics, strings.NewReader(`# HELP kubelet_pod_requests_get_total Requests of GetPod to the PodsAPI, by API version and status code.
# TYPE kubelet_pod_requests_get_total counter
kubelet_pod_requests_get_total{server_api_version="v1alpha1",status_code="NotFound"} 1
kubelet_pod_requests_get_total{server_api_version="v1alpha1",status_code="OK"} 1
# HELP kubelet_pod_requests_list_total Requests of ListPods to the PodsAPI, by API version and status code.
# TYPE kubelet_pod_requests_list_total counter
kubelet_pod_requests_list_total{server_api_version="v1alpha1",status_code="OK"} 1
# HELP kubelet_pod_requests_total Requests to the PodsAPI, by API version and status code.
# TYPE kubelet_pod_requests_total counter
kubelet_pod_requests_total{server_api_version="v1alpha1",status_code="Canceled"} 1
kubelet_pod_requests_total{server_api_version="v1alpha1",status_code="NotFound"} 1
kubelet_pod_requests_total{server_api_version="v1alpha1",status_code="OK"} 2
# HELP kubelet_pod_requests_watch_total Ended requests of WatchPods to the PodsAPI, by API version and status code.
# TYPE kubelet_pod_requests_watch_total counter
kubelet_pod_requests_watch_total{server_api_version="v1alpha1",status_code="Canceled"} 1
# HELP kubelet_pod_watch_events_dropped_total Events of the PodsAPI that a watcher did not take before its watch was ended.
# TYPE kubelet_pod_watch_events_dropped_total counter
kubelet_pod_watch_events_dropped_total 0
`)); err != nil {
		t.Error(err)
	}
}

func TestNobodyIsAnsweredUntilAllPodsAreKnown(t *testing.T) {
	r := serve(t)
	r.put("web", "1", v1.PodRunning)
	r.ready.Store(false)
	_, list := r.client.ListPods(t.Context(), &api.ListPodsRequest{})
	_, get := r.client.GetPod(t.Context(), &api.GetPodRequest{PodUID: "1"})
	events, err := r.client.WatchPods(t.Context(), &api.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, watch := events.Recv()
	for call, err := range map[string]error{"list": list, "get": get, "watch": watch} {
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "initializing") {
			t.Errorf("%s: got %v", call, err)
		}
	}
	r.ready.Store(true)
	if _, err := r.client.GetPod(t.Context(), &api.GetPodRequest{PodUID: "1"}); err != nil {
		t.Errorf("once they are known: got %v", err)
	}
}

func TestRequestsAreLimited(t *testing.T) {
	r := newRig("")
	if r.limit.Limit() != 100 || r.limit.Burst() != 10 {
		t.Errorf("got %v, %d", r.limit.Limit(), r.limit.Burst())
	}
	r.limit.SetLimit(0)
	refused := 0
	for range 30 {
		_, err := r.rateLimited(t.Context(), nil, nil, func(context.Context, any) (any, error) { return nil, nil })
		if status.Code(err) == codes.ResourceExhausted && status.Convert(err).Message() == "rejected by rate limit" {
			refused++
		}
	}
	if refused != 20 {
		t.Errorf("%d of 30 are refused, want all but the burst", refused)
	}
}

func TestWatchesEndWithPodd(t *testing.T) {
	r := newRig(filepath.Join(t.TempDir(), "s.sock"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	conn, err := grpc.NewClient("unix://"+r.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	events, err := api.NewPodsClient(conn).WatchPods(t.Context(), &api.WatchPodsRequest{}, grpc.WaitForReady(true))
	if err == nil {
		_, err = events.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	if _, err := events.Recv(); err == nil || err == io.EOF || r.subscribers.Load() != 0 {
		t.Errorf("got %v, with %d subscriptions left", err, r.subscribers.Load())
	}
}
