package critest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest/state"
)

// Server is a fake runtime. Make it with New.
type Server struct {
	t      testing.TB
	socket string

	runtimeapi.UnimplementedRuntimeServiceServer
	faults state.Faults
	record record

	rt         state.Runtime[sandboxData, containerData] // its lock guards everything below, too
	grpc       *grpc.Server
	served     chan struct{}     // closed when grpc's Serve has returned
	images     map[string]*Image // by ID
	registry   map[string]Pull   // by normalised reference
	scripts    map[string]func(attempt uint32) Script
	execs      map[string]func(cmd []string) Exec
	podCIDR    string
	network    runtimeapi.RuntimeCondition
	version    string
	driver     runtimeapi.CgroupDriver
	handlers   []*runtimeapi.RuntimeHandler
	features   *runtimeapi.RuntimeFeatures
	info       map[string]string // of Status, when it is verbose
	noEvents   bool
	maxMessage int
	loseEvents bool
	queue      []*runtimeapi.ContainerEventResponse
	streams    map[*stream]struct{}
}

// Option changes a Server before it starts.
type Option func(*Server)

// WithMaxMessage bounds messages, in bytes.
func WithMaxMessage(n int) Option { return func(s *Server) { s.maxMessage = n } }

// WithoutEvents makes GetContainerEvents answer Unimplemented.
func WithoutEvents() Option { return func(s *Server) { s.noEvents = true } }

// WithCRIVersion makes Version answer another CRI version than v1.
func WithCRIVersion(v string) Option { return func(s *Server) { s.version = v } }

// handlers returns handlers with the features of containerd's on a new kernel.
func handlers(names ...string) []*runtimeapi.RuntimeHandler {
	var out []*runtimeapi.RuntimeHandler
	for _, name := range names {
		out = append(out, &runtimeapi.RuntimeHandler{
			Name:     name,
			Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true},
		})
	}
	return out
}

// WithHandlers sets what Status reports about the runtime's handlers and features. The
// default is containerd's with runc: "" and "runc", with every feature.
func WithHandlers(handlers []*runtimeapi.RuntimeHandler, features *runtimeapi.RuntimeFeatures) Option {
	return func(s *Server) { s.handlers, s.features = handlers, features }
}

// New starts a Server that ends with the test.
func New(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{
		t:          t,
		images:     map[string]*Image{},
		registry:   map[string]Pull{},
		scripts:    map[string]func(uint32) Script{},
		execs:      map[string]func([]string) Exec{},
		streams:    map[*stream]struct{}{},
		version:    "v1",
		maxMessage: 16 << 20, // as most runtimes
		driver:     runtimeapi.CgroupDriver_CGROUPFS,
		handlers:   handlers("", "runc"),
		features:   &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true, UserNamespacesHostNetwork: true},
		network:    runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true},
	}
	s.rt.Changed = s.changed
	for _, o := range opts {
		o(s)
	}
	// t.TempDir is too long for a socket's name in some tests.
	dir, err := os.MkdirTemp("", "critest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.socket = filepath.Join(dir, "cri.sock")
	s.Start()
	t.Cleanup(s.close)
	return s
}

// Endpoint returns the socket's address, unix:///path.
func (s *Server) Endpoint() string { return "unix://" + s.socket }

// Start listens again after Stop.
func (s *Server) Start() {
	s.t.Helper()
	_ = os.Remove(s.socket) // of a Server that ended before
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		s.t.Fatalf("critest: %v", err)
	}
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(s.maxMessage), grpc.MaxSendMsgSize(s.maxMessage),
		grpc.UnaryInterceptor(s.unary),
	)
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	runtimeapi.RegisterImageServiceServer(g, &imageService{s: s})
	served := make(chan struct{})
	s.rt.Lock()
	s.grpc, s.served = g, served
	s.rt.Unlock()
	go func() {
		defer close(served)
		if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.t.Errorf("critest: %v", err)
		}
	}()
}

// Stop ends all connections and the socket, as a crash of the runtime does: processes live
// on, calls in progress fail, events that happen meanwhile are lost, and unfinished
// sandboxes and containers leave nothing behind.
func (s *Server) Stop() {
	s.rt.Lock()
	g, served := s.grpc, s.served
	s.grpc = nil
	s.queue = nil
	s.rt.Unlock()
	if g == nil {
		return
	}
	g.Stop()
	<-served
	s.rt.Lock()
	s.rt.Crash()
	s.rt.Unlock()
	s.faults.LetGo()
}

// Restart is Stop, an absence, and Start.
func (s *Server) Restart(away time.Duration) {
	s.t.Helper()
	s.Stop()
	time.Sleep(away) // the absence itself is the purpose
	s.Start()
}

func (s *Server) close() {
	s.Stop()
	s.rt.Lock()
	defer s.rt.Unlock()
	s.rt.Close()
}

// SetNetworkReady says whether a pod network is configured.
func (s *Server) SetNetworkReady(ready bool) {
	s.rt.Lock()
	defer s.rt.Unlock()
	s.network.Status = ready
	s.network.Reason, s.network.Message = "", ""
	if !ready {
		s.network.Reason = "NetworkPluginNotReady"
		s.network.Message = "Network plugin returns error: cni plugin not initialized"
	}
}

// SetInfo sets a part of the information that a verbose Status adds.
func (s *Server) SetInfo(key, text string) {
	s.rt.Lock()
	defer s.rt.Unlock()
	s.info = map[string]string{key: text}
}

// Version answers with the CRI version of the options.
func (s *Server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "critest", RuntimeVersion: "v0.0.0", RuntimeApiVersion: s.version}, nil
}

// Status says that the runtime is ready, and whether the network is.
func (s *Server) Status(_ context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	var info map[string]string
	if r.Verbose {
		info = s.info
	}
	return &runtimeapi.StatusResponse{
		Info: info,
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Status: s.network.Status, Reason: s.network.Reason, Message: s.network.Message},
		}},
		RuntimeHandlers: s.handlers,
		Features:        s.features,
	}, nil
}

// RuntimeConfig answers cgroupfs.
func (s *Server) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: s.driver}}, nil
}

// UpdateRuntimeConfig records the pod CIDR.
func (s *Server) UpdateRuntimeConfig(_ context.Context, r *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	s.rt.Lock()
	defer s.rt.Unlock()
	s.podCIDR = r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// PodCIDR returns the argument of the last UpdateRuntimeConfig.
func (s *Server) PodCIDR() string {
	s.rt.Lock()
	defer s.rt.Unlock()
	return s.podCIDR
}
