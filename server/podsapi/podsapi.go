package podsapi

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"podd/internal/pod"
	"podd/internal/text"
	"podd/internal/unixserver"
)

// The rate of requests per second and the burst, for all clients together (upstream's DefaultQPS
// and DefaultBurstTokens). As upstream, they do not limit new watches.
const (
	qps   = 100
	burst = 10
)

// maxWatchers bounds the watches of all clients together.
const maxWatchers = 64

// Pods returns pods with their newest statuses. Callers must not modify the pods. Its methods
// must not block. Changes returns a channel that delivers a value after changes, and a function
// that ends the delivery. One value may stand for several changes.
type Pods interface {
	Pods() []*v1.Pod
	Pod(uid pod.UID) *v1.Pod
	Changes() (changes <-chan struct{}, stop func())
}

// Config configures a Server. All fields are required.
type Config struct {
	// Socket is the path of the socket; its directory is created.
	Socket string
	Pods   Pods
	// Ready says whether Pods has all pods of this node. It must not block.
	Ready   func() bool
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Server serves the API. Create it with New.
type Server struct {
	api.UnimplementedPodsServer
	cfg      Config
	limit    *rate.Limiter
	metrics  *metrics
	watchers chan struct{} // a slot for each
}

// New returns a Server. It starts nothing.
func New(c Config) *Server {
	return &Server{cfg: c, limit: rate.NewLimiter(qps, burst), metrics: newMetrics(c.Metrics), watchers: make(chan struct{}, maxWatchers)}
}

// Run serves until ctx ends, and returns nil. If it cannot listen, it only logs that, because no
// pod needs this API.
func (s *Server) Run(ctx context.Context) error {
	l, err := unixserver.Listen(s.cfg.Socket)
	if err != nil {
		s.cfg.Log.Error("cannot serve the PodsAPI", "error", err)
		<-ctx.Done()
		return nil
	}
	server := grpc.NewServer(append(unixserver.ServerOptions(), grpc.ChainUnaryInterceptor(s.rateLimited, s.metrics.unary), grpc.StreamInterceptor(s.metrics.stream))...)
	api.RegisterPodsServer(server, s)
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := unixserver.Serve(server, l); err != nil {
			s.cfg.Log.Error("the PodsAPI has stopped", "error", err)
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

// checkReady returns the error for calls that come too early.
func (s *Server) checkReady() error {
	if !s.cfg.Ready() {
		return grpcstatus.Error(codes.FailedPrecondition, "podd is initializing: it does not know all pods of this node yet")
	}
	return nil
}

// ListPods returns all pods, sorted by UID.
func (s *Server) ListPods(context.Context, *api.ListPodsRequest) (*api.ListPodsResponse, error) {
	if err := s.checkReady(); err != nil {
		return nil, err
	}
	all := byUID(s.cfg.Pods.Pods())
	r := &api.ListPodsResponse{Pods: make([][]byte, len(all))}
	for i, p := range all {
		var err error
		if r.Pods[i], err = encode(p); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// GetPod returns one pod, by its UID.
func (s *Server) GetPod(_ context.Context, q *api.GetPodRequest) (*api.GetPodResponse, error) {
	if err := s.checkReady(); err != nil {
		return nil, err
	}
	const most = 128 // bytes of what a client sent, in an error
	p := s.cfg.Pods.Pod(pod.UID(q.GetPodUID()))
	if p == nil {
		return nil, grpcstatus.Errorf(codes.NotFound, "pod with UID %s not found", text.Truncate(q.GetPodUID(), most))
	}
	encoded, err := encode(p)
	if err != nil {
		return nil, err
	}
	return &api.GetPodResponse{Pod: encoded}, nil
}

func byUID(pods []*v1.Pod) []*v1.Pod {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return pods
}

func encode(p *v1.Pod) ([]byte, error) {
	encoded, err := p.Marshal()
	if err != nil {
		return nil, grpcstatus.Errorf(codes.Internal, "encode pod %s/%s: %v", p.Namespace, p.Name, err)
	}
	return encoded, nil
}
