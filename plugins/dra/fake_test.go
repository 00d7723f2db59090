package dra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"podd/internal/pod"
	"podd/plugins/registry"
)

const gpu = "gpu.example.com"

// fake is a driver: on a socket (serve), or called without one (plug).
type fake struct {
	drapb.UnimplementedDRAPluginServer
	name string

	mu    sync.Mutex
	calls []string
	// prepare and unprepare answer instead of what is usual, if they are not nil.
	prepare   func(ctx context.Context, q *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error)
	unprepare func(ctx context.Context, q *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error)
	health    chan []*healthapi.DeviceHealth
	// unwatchable is the answer to who wants to follow the health, and unreported what ends a
	// stream before its first report.
	unwatchable, unreported error
	watches                 int  // how often somebody wanted to follow it
	closed                  bool // the connection of an instance that plug registered
}

func newFake(name string) *fake {
	return &fake{name: name, health: make(chan []*healthapi.DeviceHealth, 10)}
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) note(call string, claims []*drapb.Claim) {
	for _, c := range claims {
		call += " " + c.Namespace + "/" + c.Name + "/" + c.Uid
	}
	f.set(func() { f.calls = append(f.calls, call) })
}

// heard are the calls since the last time.
func (f *fake) heard() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.calls = nil }()
	return strings.Join(f.calls, "; ")
}

func (f *fake) NodePrepareResources(ctx context.Context, q *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
	f.note("prepare", q.Claims)
	f.mu.Lock()
	answer := f.prepare
	f.mu.Unlock()
	if answer != nil {
		return answer(ctx, q)
	}
	return f.usual(q), nil
}

// usual has a device for each of the requests "a" and "b".
func (f *fake) usual(q *drapb.NodePrepareResourcesRequest) *drapb.NodePrepareResourcesResponse {
	r := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
	for _, c := range q.Claims {
		r.Claims[c.Uid] = &drapb.NodePrepareResourceResponse{Devices: []*drapb.Device{
			{RequestNames: []string{"a"}, PoolName: "pool", DeviceName: "0", CdiDeviceIds: []string{f.name + "/gpu=" + c.Name + "-0", f.name + "/common=all"}},
			{RequestNames: []string{"b/large"}, PoolName: "pool", DeviceName: "1", CdiDeviceIds: []string{f.name + "/gpu=" + c.Name + "-1", f.name + "/common=all"}},
		}}
	}
	return r
}

func (f *fake) NodeUnprepareResources(ctx context.Context, q *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
	f.note("unprepare", q.Claims)
	f.mu.Lock()
	answer := f.unprepare
	f.mu.Unlock()
	if answer != nil {
		return answer(ctx, q)
	}
	r := &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{}}
	for _, c := range q.Claims {
		r.Claims[c.Uid] = &drapb.NodeUnprepareResourceResponse{}
	}
	return r, nil
}

// watched serves the health service; not all drivers have it.
type watched struct {
	healthapi.UnimplementedDRAResourceHealthServer
	*fake
}

func (w watched) NodeWatchResources(_ *healthapi.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[healthapi.NodeWatchResourcesResponse]) error {
	for {
		select {
		case devices, ok := <-w.health:
			if !ok {
				return errors.New("the driver ends")
			}
			if err := stream.Send(&healthapi.NodeWatchResourcesResponse{Devices: devices}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// client calls a fake without a socket, as a bubble of simulated time wants it.
type client struct{ *fake }

func (c client) NodePrepareResources(ctx context.Context, q *drapb.NodePrepareResourcesRequest, _ ...grpc.CallOption) (*drapb.NodePrepareResourcesResponse, error) {
	return c.fake.NodePrepareResources(ctx, q)
}

func (c client) NodeUnprepareResources(ctx context.Context, q *drapb.NodeUnprepareResourcesRequest, _ ...grpc.CallOption) (*drapb.NodeUnprepareResourcesResponse, error) {
	return c.fake.NodeUnprepareResources(ctx, q)
}

func (c client) NodeWatchResources(ctx context.Context, _ *healthapi.NodeWatchResourcesRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[healthapi.NodeWatchResourcesResponse], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches++
	if c.unwatchable != nil {
		return nil, c.unwatchable
	}
	return stream{ctx: func() context.Context { return ctx }, health: c.health, err: c.unreported}, nil
}

type stream struct {
	grpc.ClientStream
	ctx    func() context.Context
	health chan []*healthapi.DeviceHealth
	err    error
}

func (s stream) Recv() (*healthapi.NodeWatchResourcesResponse, error) {
	if s.err != nil {
		return nil, s.err
	}
	select {
	case devices, ok := <-s.health:
		if !ok {
			return nil, io.EOF
		}
		return &healthapi.NodeWatchResourcesResponse{Devices: devices}, nil
	case <-s.ctx().Done():
		return nil, s.ctx().Err()
	}
}

// cluster has claims, and records deletions of ResourceSlices.
type cluster struct {
	mu     sync.Mutex
	claims map[string]*resourcev1.ResourceClaim
	wiped  []string
	err    error // of deletions
	// held, if set, holds back the answers to deletions until it is closed.
	held chan struct{}
}

func (c *cluster) ResourceClaim(_ context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if claim := c.claims[namespace+"/"+name]; claim != nil {
		return claim.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}, name)
}

func (c *cluster) DeleteResourceSlices(_ context.Context, node, driver string) error {
	c.mu.Lock()
	c.wiped = append(c.wiped, node+" "+driver)
	err, held := c.err, c.held
	c.mu.Unlock()
	if held != nil {
		<-held
	}
	return err
}

func (c *cluster) deletions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.wiped)
}

// add makes an allocated claim of a driver, reserved for pods.
func (c *cluster) add(name string, uid types.UID, driver string, pods ...*v1.Pod) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "a", Driver: driver, Pool: "pool", Device: "0"}, {Request: "b/large", Driver: driver, Pool: "pool", Device: "1"},
	}}}
	for _, p := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims["default/"+name] = claim
	return claim
}

type wakes struct {
	mu   sync.Mutex
	pods map[pod.UID]int
}

func (w *wakes) Changed(uid pod.UID)    { w.mu.Lock(); w.pods[uid]++; w.mu.Unlock() }
func (w *wakes) of(uid pod.UID) (n int) { w.mu.Lock(); defer w.mu.Unlock(); return w.pods[uid] }

// rig is a Manager with its root directory and its cluster.
type rig struct {
	*Manager
	*wakes
	api      *cluster
	t        *testing.T
	root     string
	registry *prometheus.Registry
	stop     func()
}

// Register and Deregister are what the registry of plugins calls.
func (r *rig) Register(ctx context.Context, name, endpoint string, versions []string) error {
	return r.Manager.Register(ctx, &registry.Plugin{Name: name, Endpoint: endpoint, Versions: versions})
}

func (r *rig) Deregister(name, endpoint string) {
	r.Manager.Deregister(&registry.Plugin{Name: name, Endpoint: endpoint})
}

// newRig makes a Manager that runs, after an earlier one if that is not nil.
func newRig(t *testing.T, before *rig) *rig {
	t.Helper()
	r := &rig{wakes: &wakes{pods: map[pod.UID]int{}}, t: t, api: &cluster{claims: map[string]*resourcev1.ResourceClaim{}}, registry: prometheus.NewRegistry()}
	if before != nil {
		before.stop()
		r.root, r.api = before.root, before.api
	} else {
		var err error
		if r.root, err = os.MkdirTemp("", "dra"); err != nil { // sockets need short paths
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(r.root) })
	}
	r.Manager = New(Config{RootDir: r.root, NodeName: "node", Cluster: r.api, Waker: r.wakes, Log: slog.New(slog.DiscardHandler), Metrics: r.registry})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	r.stop = func() {
		for !r.idle() { // Run closes only the connections that it serves
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
			}
		}
		cancel()
		<-ended
	}
	t.Cleanup(r.stop)
	return r
}

// plug registers a fake without a socket, in simulated time; connect(false) ends its connection,
// connect(true) makes it anew.
func (r *rig) plug(f *fake) (connect func(bool)) {
	r.t.Helper()
	connect = r.plugAway(f)
	connect(true)
	synctest.Wait() // it is connected
	return connect
}

// plugAway is plug for an instance that is not connected yet.
func (r *rig) plugAway(f *fake) (connect func(bool)) {
	r.t.Helper()
	states := make(chan bool, 10)
	i := &instance{driver: f.name, endpoint: endpointOf(f), api: client{f}, health: []healthapi.DRAResourceHealthClient{client{f}}, close: func() { f.set(func() { f.closed = true }) }, done: make(chan struct{})}
	i.watch = func(ctx context.Context, tell func(bool)) {
		for {
			select {
			case connected := <-states:
				tell(connected)
			case <-ctx.Done():
				return
			}
		}
	}
	if err := r.addInstance(i); err != nil {
		r.t.Fatal(err)
	}
	return func(connected bool) { states <- connected }
}

// endpointOf is that of a fake that plug has registered.
func endpointOf(f *fake) string { return fmt.Sprintf("/%p", f) }

// serve has a fake listen on a socket.
func (r *rig) serve(f *fake, socket string, register ...func(*grpc.Server)) (path string, stop func()) {
	r.t.Helper()
	path = filepath.Join(r.root, socket)
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		r.t.Fatal(err)
	}
	s := grpc.NewServer()
	drapb.RegisterDRAPluginServer(s, f)
	for _, more := range register {
		more(s)
	}
	go func() { _ = s.Serve(l) }()
	r.t.Cleanup(s.Stop)
	return path, s.Stop
}

func (r *rig) register(name, path string, versions ...string) {
	r.t.Helper()
	if len(versions) == 0 {
		versions = []string{drapb.DRAPluginService, drabeta.DRAPluginService}
	}
	if err := r.Register(r.t.Context(), name, path, versions); err != nil {
		r.t.Fatal(err)
	}
}

// served is a fake of the driver gpu that is registered.
func (r *rig) served() *fake {
	r.t.Helper()
	f := newFake(gpu)
	path, _ := r.serve(f, "gpu.sock")
	r.register(gpu, path)
	return f
}

// idle says that Run has started all tasks.
func (r *rig) idle() bool { return r.loop.Idle() }

func (r *rig) connected(driver string) bool {
	r.Manager.mu.Lock()
	defer r.Manager.mu.Unlock()
	return slices.ContainsFunc(r.drivers[driver], func(i *instance) bool { return i.connected })
}

func (r *rig) eventually(what string, is func() bool) {
	r.t.Helper()
	for until := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			r.t.Fatalf("it is not so that %s", what)
		}
	}
}

// patient ends what would wait for ever.
func (r *rig) patient() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) prepares(p *v1.Pod) {
	r.t.Helper()
	if err := r.Prepare(r.patient(), p); err != nil {
		r.t.Errorf("prepare %s: %v", p.Name, err)
	}
}

func (r *rig) unprepares(p *v1.Pod) {
	r.t.Helper()
	if err := r.Unprepare(r.patient(), p.UID); err != nil {
		r.t.Errorf("unprepare %s: %v", p.Name, err)
	}
}

// expect compares what a driver has heard since the last time.
func (r *rig) expect(f *fake, calls string) {
	r.t.Helper()
	if got := f.heard(); got != calls {
		r.t.Errorf("driver %s has heard %q, want %q", f.name, got, calls)
	}
}

// refused expects an error of Prepare.
func (r *rig) refused(p *v1.Pod, want string) {
	r.t.Helper()
	if err := r.Prepare(r.patient(), p); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 5000 {
		r.t.Errorf("got %.300v, want %q", err, want)
	}
}

// has is what a pod's container "c" gets.
func (r *rig) has(p *v1.Pod) string {
	r.t.Helper()
	cdi, err := r.Container(p, &p.Spec.Containers[0])
	if err != nil {
		return err.Error()
	}
	return strings.Join(cdi, " ")
}

// aPod has one container "c" that wants all of each claim.
func aPod(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = name, "default", pod.UID("uid-"+name)
	p.Spec.Containers = []v1.Container{{Name: "c"}}
	for _, claim := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: "my-" + claim, ResourceClaimName: &claim})
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, v1.ResourceClaim{Name: "my-" + claim})
	}
	return p
}
