package podresources

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	alpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"podd/internal/pod"
	"podd/internal/unixserver"
)

// all has one device for each container, which is named after it.
type all struct{}

func (all) ContainerDevices(uid pod.UID, container string) []*api.ContainerDevices {
	return []*api.ContainerDevices{{ResourceName: "example.com/gpu", DeviceIds: []string{string(uid) + "-" + container}}}
}

func (all) AllocatableDevices() []*api.ContainerDevices {
	return []*api.ContainerDevices{{ResourceName: "example.com/gpu", DeviceIds: []string{"a"}}}
}

func (all) Resources(p *v1.Pod, c *v1.Container) []*api.DynamicResource {
	return []*api.DynamicResource{{ClaimName: "claim-of-" + c.Name, ClaimNamespace: p.Namespace}}
}

func aPod(name string) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = name, "default", pod.UID(name)
	p.Spec.InitContainers = []v1.Container{{Name: "first"}, {Name: "beside", RestartPolicy: &always}}
	p.Spec.Containers = []v1.Container{{Name: "main"}}
	return p
}

type rig struct {
	client  api.PodResourcesListerClient
	alpha   alpha.PodResourcesListerClient
	socket  string
	metrics *prometheus.Registry
}

func serve(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "res") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{socket: filepath.Join(dir, "pod-resources", "kubelet.sock"), metrics: prometheus.NewRegistry()}
	s := New(Config{Socket: r.socket, Pods: func() []*v1.Pod { return []*v1.Pod{aPod("web"), aPod("db")} }, Devices: all{}, ResourceClaims: all{}, Log: slog.New(slog.DiscardHandler), Metrics: r.metrics})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	conn, err := grpc.NewClient("unix://"+r.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r.client, r.alpha = api.NewPodResourcesListerClient(conn), alpha.NewPodResourcesListerClient(conn)
	return r
}

func TestWhatAnAgentLearns(t *testing.T) {
	r := serve(t)
	list, err := r.client.List(t.Context(), &api.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil || len(list.PodResources) != 2 || list.PodResources[0].Name != "db" {
		t.Fatalf("got %v, %v", list, err)
	}
	// What an init container had, others may have now.
	if c := list.PodResources[1].Containers; len(c) != 2 || c[0].Name != "beside" || c[1].Name != "main" || c[1].Devices[0].DeviceIds[0] != "web-main" || c[1].DynamicResources[0].ClaimName != "claim-of-main" {
		t.Errorf("got %v", c)
	}
	if one, err := r.client.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "web", PodNamespace: "default"}); err != nil || one.PodResources.Name != "web" {
		t.Errorf("got %v, %v", one, err)
	}
	if _, err := r.client.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "web", PodNamespace: "other"}); status.Convert(err).Message() != "pod web in namespace other not found" {
		t.Errorf("got %v", err)
	}
	if usable, err := r.client.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{}); err != nil || len(usable.Devices) != 1 || len(usable.CpuIds) > 0 {
		t.Errorf("got %v, %v", usable, err)
	}
	if err := testutil.GatherAndCompare(r.metrics, strings.NewReader(`# HELP kubelet_pod_resources_endpoint_requests_total Requests to the pod resources API.
# TYPE kubelet_pod_resources_endpoint_requests_total counter
kubelet_pod_resources_endpoint_requests_total{server_api_version="v1"} 4
`), "kubelet_pod_resources_endpoint_requests_total"); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(r.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
}

// TestAnAgentOfTheFirstAPI asks the same socket, and learns what that has: no sidecars.
func TestAnAgentOfTheFirstAPI(t *testing.T) {
	r := serve(t)
	list, err := r.alpha.List(t.Context(), &alpha.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil || len(list.PodResources) != 2 || list.PodResources[0].Name != "db" || list.PodResources[1].Namespace != "default" {
		t.Fatalf("got %v, %v", list, err)
	}
	c := list.PodResources[1].Containers
	if len(c) != 1 || c[0].Name != "main" || len(c[0].Devices) != 1 || c[0].Devices[0].ResourceName != "example.com/gpu" || c[0].Devices[0].DeviceIds[0] != "web-main" {
		t.Errorf("got %v", c)
	}
	if err := testutil.GatherAndCompare(r.metrics, strings.NewReader(`# HELP kubelet_pod_resources_endpoint_requests_total Requests to the pod resources API.
# TYPE kubelet_pod_resources_endpoint_requests_total counter
kubelet_pod_resources_endpoint_requests_total{server_api_version="v1alpha1"} 1
`), "kubelet_pod_resources_endpoint_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestRequestsAreLimited(t *testing.T) {
	r := serve(t)
	if _, err := r.client.List(t.Context(), &api.ListPodResourcesRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	// However fast or slow this machine is, a limiter without tokens refuses.
	s := New(Config{Pods: func() []*v1.Pod { return nil }, Devices: all{}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if s.limit.Limit() != 100 || s.limit.Burst() != 10 {
		t.Errorf("got %v, %d", s.limit.Limit(), s.limit.Burst())
	}
	s.limit.SetLimit(0)
	refused := 0
	for range 30 {
		_, err := s.rateLimited(t.Context(), nil, nil, func(context.Context, any) (any, error) { return nil, nil })
		if status.Code(err) == codes.ResourceExhausted && status.Convert(err).Message() == "rejected by rate limit" {
			refused++
		}
	}
	if refused != 20 {
		t.Errorf("%d of 30 are refused, want all but the burst", refused)
	}
	if _, err := r.client.Get(t.Context(), &api.GetPodResourcesRequest{PodName: strings.Repeat("x", 100000)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a large request: got %v", err)
	}
}

// Clients that connect and say nothing take no more than their places, and give them back.
func TestClientsThatSayNothing(t *testing.T) {
	r := serve(t)
	if _, err := r.client.List(t.Context(), &api.ListPodResourcesRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	var silent []net.Conn
	for range 3 * unixserver.MaxConnections {
		c, err := net.Dial("unix", r.socket)
		if err != nil {
			break // the queue of the socket is full
		}
		silent = append(silent, c)
	}
	if _, err := r.client.List(t.Context(), &api.ListPodResourcesRequest{}); err != nil {
		t.Errorf("a client that was there: got %v", err)
	}
	for _, c := range silent {
		c.Close()
	}
	conn, err := grpc.NewClient("unix://"+r.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := api.NewPodResourcesListerClient(conn).List(ctx, &api.ListPodResourcesRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("a client that comes later: got %v", err)
	}
}
