// Package podresources serves the pod resources API (KEP-606, KEP-2043; podresources/v1,
// and List of v1alpha1) on <root-dir>/pod-resources/kubelet.sock. Monitoring agents and
// topology aware schedulers use it to learn which pod has which devices.
//
// It gets its data from others: pods from the status writer, devices from package devices,
// claims from package dra. podd assigns no processors and no memory to containers
// exclusively, so those lists are empty, like those of a kubelet with the policies "none".
// Only root may connect. Requests are limited in rate, as upstream's are, in size and in
// number.
package podresources

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	alpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"podd/internal/pod"
	"podd/internal/unixserver"
)

// Requests per second, and at once (upstream's DefaultQPS and DefaultBurstTokens).
const (
	qps   = 100
	burst = 10
)

// Devices returns the devices of containers. Its methods must not block.
type Devices interface {
	ContainerDevices(uid pod.UID, container string) []*api.ContainerDevices
	AllocatableDevices() []*api.ContainerDevices
}

// ResourceClaims returns what containers have by ResourceClaims. Its method must not block.
type ResourceClaims interface {
	Resources(p *v1.Pod, c *v1.Container) []*api.DynamicResource
}

// NoResourceClaims serves a node without a cluster: there are no ResourceClaims.
var NoResourceClaims ResourceClaims

// Config configures a Server. All fields without a default are required.
type Config struct {
	// Socket is the path of the socket; its directory is created.
	Socket string
	// Pods returns the pods that have not ended. It must not block.
	Pods           func() []*v1.Pod
	Devices        Devices
	ResourceClaims ResourceClaims // or NoResourceClaims
	Log            *slog.Logger
	Metrics        prometheus.Registerer
}

// Server serves the API. Create it with New.
type Server struct {
	api.UnimplementedPodResourcesListerServer
	cfg     Config
	limit   *rate.Limiter
	metrics *metrics
}

// New starts nothing.
func New(c Config) *Server {
	return &Server{cfg: c, limit: rate.NewLimiter(qps, burst), metrics: newMetrics(c.Metrics)}
}

// Run serves until ctx ends. If it cannot listen, it logs that, because no pod needs this
// API. It returns nil.
func (s *Server) Run(ctx context.Context) error {
	l, err := unixserver.Listen(s.cfg.Socket)
	if err != nil {
		s.cfg.Log.Error("cannot serve the pod resources API", "error", err)
		<-ctx.Done()
		return nil
	}
	server := grpc.NewServer(append(unixserver.ServerOptions(), grpc.UnaryInterceptor(s.rateLimited))...)
	api.RegisterPodResourcesListerServer(server, s)
	alpha.RegisterPodResourcesListerServer(server, alphaServer{s: s})
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := unixserver.Serve(server, l); err != nil {
			s.cfg.Log.Error("the pod resources API is not served any more", "error", err)
		}
	})
	<-ctx.Done()
	server.Stop()
	ended.Wait()
	return nil
}

// rateLimited is a grpc.UnaryServerInterceptor.
func (s *Server) rateLimited(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if !s.limit.Allow() {
		return nil, grpcstatus.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	return handle(ctx, request)
}

// List returns the pods that have not ended, with the devices of their containers.
func (s *Server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	s.metrics.count(s.metrics.list)
	r := &api.ListPodResourcesResponse{}
	for _, p := range s.pods() {
		r.PodResources = append(r.PodResources, s.podResources(p))
	}
	return r, nil
}

// Get returns one pod, by its name.
func (s *Server) Get(_ context.Context, q *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	s.metrics.count(s.metrics.get)
	for _, p := range s.pods() {
		if p.Namespace == q.GetPodNamespace() && p.Name == q.GetPodName() {
			return &api.GetPodResourcesResponse{PodResources: s.podResources(p)}, nil
		}
	}
	s.metrics.getErrors.WithLabelValues(version).Inc()
	return nil, fmt.Errorf("pod %s in namespace %s not found", q.GetPodName(), q.GetPodNamespace())
}

// GetAllocatableResources returns the healthy devices, whether or not a pod has them.
func (s *Server) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	s.metrics.count(s.metrics.allocatable)
	return &api.AllocatableResourcesResponse{Devices: s.cfg.Devices.AllocatableDevices()}, nil
}

// pods returns the pods sorted, so that two responses can be compared.
func (s *Server) pods() []*v1.Pod {
	all := slices.Clone(s.cfg.Pods())
	slices.SortFunc(all, func(a, b *v1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return all
}

// podResources returns a pod's containers, except those that have run before the others: others may
// have their devices now.
func (s *Server) podResources(p *v1.Pod) *api.PodResources {
	r := &api.PodResources{Name: p.Name, Namespace: p.Namespace}
	for c, kind := range pod.ContainerSpecs(&p.Spec) {
		if kind == pod.RegularContainer || kind == pod.SidecarContainer {
			one := &api.ContainerResources{Name: c.Name, Devices: s.cfg.Devices.ContainerDevices(p.UID, c.Name)}
			if s.cfg.ResourceClaims != NoResourceClaims {
				one.DynamicResources = s.cfg.ResourceClaims.Resources(p, c)
			}
			r.Containers = append(r.Containers, one)
		}
	}
	return r
}
