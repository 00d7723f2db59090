package devices

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/pod"
	"podd/plugins/registry"
)

// fake is a device plugin: on a socket (serve), or called without one (client).
type fake struct {
	pluginapi.UnimplementedDevicePluginServer
	options pluginapi.DevicePluginOptions
	// respond makes the response for some devices; nil for one that names them. A nil response
	// is one for no container.
	respond func(ctx context.Context, ids []string) (*pluginapi.ContainerAllocateResponse, error)
	// prefer says what the plugin prefers; nil for a response for no container.
	prefer func(*pluginapi.ContainerPreferredAllocationRequest) []string
	// before runs at the start of each call but Allocate, by its name; an error is the response.
	before func(ctx context.Context, call string) error

	mu          sync.Mutex
	lists       chan []*pluginapi.Device
	calls       []string
	connections int // that are open, to a socket
}

func newFake(ids ...string) *fake {
	f := &fake{lists: make(chan []*pluginapi.Device, 100)}
	f.lists <- healthy(ids...)
	return f
}

func healthy(ids ...string) (all []*pluginapi.Device) {
	for _, id := range ids {
		all = append(all, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	return all
}

func (f *fake) note(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
}

func (f *fake) count(call string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == call {
			n++
		}
	}
	return n
}

// starts notes a call and says how it ends early.
func (f *fake) starts(ctx context.Context, call string) error {
	f.note(call)
	if f.before == nil {
		return nil
	}
	return f.before(ctx, call)
}

// TagConn, HandleConn, TagRPC and HandleRPC count the open connections (stats.Handler).
func (f *fake) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (f *fake) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (f *fake) HandleRPC(context.Context, stats.RPCStats)                         {}

func (f *fake) HandleConn(_ context.Context, s stats.ConnStats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch s.(type) {
	case *stats.ConnBegin:
		f.connections++
	case *stats.ConnEnd:
		f.connections--
	}
}

func (f *fake) connected() int { f.mu.Lock(); defer f.mu.Unlock(); return f.connections }

func (f *fake) GetDevicePluginOptions(ctx context.Context, _ *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	if err := f.starts(ctx, "GetDevicePluginOptions"); err != nil {
		return nil, err
	}
	return &pluginapi.DevicePluginOptions{PreStartRequired: f.options.PreStartRequired, GetPreferredAllocationAvailable: f.options.GetPreferredAllocationAvailable}, nil
}

func (f *fake) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	if err := f.starts(stream.Context(), "ListAndWatch"); err != nil {
		return err
	}
	for {
		select {
		case list, ok := <-f.lists:
			if !ok {
				return errors.New("the plugin ends")
			}
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (f *fake) Allocate(ctx context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	f.note("Allocate")
	ids := r.ContainerRequests[0].DevicesIds
	if f.respond == nil {
		return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{Envs: map[string]string{"DEVICES": join(ids)}}}}, nil
	}
	one, err := f.respond(ctx, ids)
	if one == nil || err != nil {
		return &pluginapi.AllocateResponse{}, err
	}
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{one}}, nil
}

func join(ids []string) (text string) {
	for _, id := range slices.Sorted(slices.Values(ids)) {
		text += id + " "
	}
	return text
}

func (f *fake) GetPreferredAllocation(ctx context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	if err := f.starts(ctx, "GetPreferredAllocation"); err != nil || f.prefer == nil {
		return &pluginapi.PreferredAllocationResponse{}, err
	}
	return &pluginapi.PreferredAllocationResponse{ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{{DeviceIDs: f.prefer(r.ContainerRequests[0])}}}, nil
}

func (f *fake) PreStartContainer(ctx context.Context, _ *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, f.starts(ctx, "PreStartContainer")
}

// client calls a fake without a socket, as a bubble of simulated time wants it.
type client struct{ *fake }

func (c client) GetDevicePluginOptions(ctx context.Context, e *pluginapi.Empty, _ ...grpc.CallOption) (*pluginapi.DevicePluginOptions, error) {
	return c.fake.GetDevicePluginOptions(ctx, e)
}

func (c client) ListAndWatch(ctx context.Context, _ *pluginapi.Empty, _ ...grpc.CallOption) (grpc.ServerStreamingClient[pluginapi.ListAndWatchResponse], error) {
	if err := c.starts(ctx, "ListAndWatch"); err != nil {
		return nil, err
	}
	return stream{ctx: func() context.Context { return ctx }, lists: c.lists}, nil
}

func (c client) GetPreferredAllocation(ctx context.Context, r *pluginapi.PreferredAllocationRequest, _ ...grpc.CallOption) (*pluginapi.PreferredAllocationResponse, error) {
	return c.fake.GetPreferredAllocation(ctx, r)
}

func (c client) Allocate(ctx context.Context, r *pluginapi.AllocateRequest, _ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	return c.fake.Allocate(ctx, r)
}

func (c client) PreStartContainer(ctx context.Context, r *pluginapi.PreStartContainerRequest, _ ...grpc.CallOption) (*pluginapi.PreStartContainerResponse, error) {
	return c.fake.PreStartContainer(ctx, r)
}

type stream struct {
	grpc.ClientStream
	ctx   func() context.Context
	lists chan []*pluginapi.Device
}

func (s stream) Recv() (*pluginapi.ListAndWatchResponse, error) {
	select {
	case list, ok := <-s.lists:
		if !ok {
			return nil, io.EOF
		}
		return &pluginapi.ListAndWatchResponse{Devices: list}, nil
	case <-s.ctx().Done():
		return nil, s.ctx().Err()
	}
}

// wakes records what a Manager tells.
type wakes struct {
	mu          sync.Mutex
	pods        map[pod.UID]int
	admit, node int
}

func (w *wakes) Changed(uid pod.UID) { w.mu.Lock(); w.pods[uid]++; w.mu.Unlock() }
func (w *wakes) RetryAdmission()     { w.mu.Lock(); w.admit++; w.mu.Unlock() }
func (w *wakes) NodeChanged()        { w.mu.Lock(); w.node++; w.mu.Unlock() }

func (w *wakes) of(uid pod.UID) int { w.mu.Lock(); defer w.mu.Unlock(); return w.pods[uid] }
func (w *wakes) admits() int        { w.mu.Lock(); defer w.mu.Unlock(); return w.admit }
func (w *wakes) nodes() int         { w.mu.Lock(); defer w.mu.Unlock(); return w.node }

// logbook has what a Manager logs.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.text.String() }

// rig is a Manager with its root directory.
type rig struct {
	*Manager
	*wakes
	t       *testing.T
	root    string
	stop    func()
	logged  *logbook
	gathers *prometheus.Registry
	closed  map[*fake]*atomic.Int32 // how often the connections to those without a socket were closed
}

// Register and Deregister are what the registry of plugins calls.
func (r *rig) Register(ctx context.Context, name, endpoint string, versions []string) error {
	return r.Manager.Register(ctx, &registry.Plugin{Name: name, Endpoint: endpoint, Versions: versions})
}

func (r *rig) Deregister(name, endpoint string) {
	r.Manager.Deregister(&registry.Plugin{Name: name, Endpoint: endpoint})
}

// newRig makes a Manager that does not wait for plugins after its start.
func newRig(t *testing.T, root string) *rig {
	t.Helper()
	r := unsettled(t, root)
	r.knownPluginsUntil, r.Manager.newPluginsUntil = time.Time{}, time.Time{}
	return r
}

// unsettled makes a Manager, in a directory of its own for "", and starts nothing.
func unsettled(t *testing.T, root string) *rig {
	t.Helper()
	if root == "" {
		var err error
		if root, err = os.MkdirTemp("", "dev"); err != nil { // sockets need short paths
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(root) })
	}
	r := &rig{wakes: &wakes{pods: map[pod.UID]int{}}, t: t, root: root, logged: &logbook{}, gathers: prometheus.NewRegistry(), closed: map[*fake]*atomic.Int32{}}
	r.Manager = New(Config{RootDir: root, Waker: r.wakes, Log: slog.New(slog.NewTextHandler(r.logged, nil)), Metrics: r.gathers})
	return r
}

// run starts Run, or the loop alone in a bubble.
func (r *rig) run(run func(context.Context)) *rig {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); run(ctx) }()
	r.stop = func() { cancel(); <-ended }
	r.t.Cleanup(r.stop)
	return r
}

func served(t *testing.T, root string) *rig {
	r := newRig(t, root)
	return r.run(func(ctx context.Context) { _ = r.Run(ctx) })
}

func looped(t *testing.T, root string) *rig { return newRig(t, root).loops() }

// loops is Run without the sockets, for a bubble.
func (r *rig) loops() *rig {
	return r.run(func(ctx context.Context) { r.loop.Run(ctx, r.runDueWork) })
}

// plug makes a fake the plugin of a resource, without a socket. Its endpoint is the resource's
// name: another one takes its place.
func (r *rig) plug(name string, f *fake) { r.t.Helper(); r.plugAt(name, name, f) }

// plugAt adds a fake to the plugins of a resource, without a socket.
func (r *rig) plugAt(name, endpoint string, f *fake) {
	r.t.Helper()
	o, _ := f.GetDevicePluginOptions(r.t.Context(), nil)
	closed := &atomic.Int32{}
	r.closed[f] = closed
	pl := &plugin{endpoint: endpoint, api: client{f}, close: func() { closed.Add(1) }, done: make(chan struct{})}
	pl.options = pluginOptions{preStart: o.PreStartRequired, prefer: o.GetPreferredAllocationAvailable}
	if err := r.addPlugin(name, pl); err != nil {
		r.t.Fatal(err)
	}
}

// serve has a fake listen on a socket in the directory, which exists once podd serves.
func (r *rig) serve(f *fake, socket string) *grpc.Server {
	r.t.Helper()
	r.eventually("podd listens", func() bool { _, err := os.Stat(filepath.Join(r.dir, "kubelet.sock")); return err == nil })
	l, err := net.Listen("unix", filepath.Join(r.dir, socket))
	if err != nil {
		r.t.Fatal(err)
	}
	s := grpc.NewServer(grpc.StatsHandler(f))
	pluginapi.RegisterDevicePluginServer(s, f)
	go func() { _ = s.Serve(l) }()
	r.t.Cleanup(s.Stop)
	return s
}

// register calls podd's socket.
func (r *rig) register(q *pluginapi.RegisterRequest) error {
	r.t.Helper()
	r.eventually("podd listens", func() bool { _, err := os.Stat(filepath.Join(r.dir, "kubelet.sock")); return err == nil })
	conn, err := grpc.NewClient("unix://"+filepath.Join(r.dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(r.t.Context(), q)
	return err
}

func (r *rig) registerAs(name, socket string) {
	r.t.Helper()
	if err := r.register(&pluginapi.RegisterRequest{Version: pluginapi.Version, ResourceName: name, Endpoint: socket}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) eventually(what string, is func() bool) {
	r.t.Helper()
	for until := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			r.t.Fatalf("it is not so that %s", what)
		}
	}
}

// admitted waits until a pod is admitted.
func (r *rig) admitted(p *v1.Pod) {
	r.t.Helper()
	r.eventually("pod "+p.Name+" is admitted", func() bool {
		waits, err := r.Admit(p)
		if err != nil {
			r.t.Fatalf("pod %s: %v", p.Name, err)
		}
		return waits == ""
	})
}

// amount of a resource of the Node: capacity and allocatable; -1 for one that is not there.
func (r *rig) amount(name string) (all, usable int64) {
	c, a := r.Resources()
	if _, there := c[v1.ResourceName(name)]; !there {
		return -1, -1
	}
	x, y := c[v1.ResourceName(name)], a[v1.ResourceName(name)]
	return x.Value(), y.Value()
}

// aPod has one container "c" with so many devices.
func aPod(name string, kv ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = name, "default", pod.UID("uid-"+name)
	p.Annotations = map[string]string{pod.AnnotationSource: "api"}
	p.Spec.Containers = []v1.Container{withLimits("c", kv...)}
	return p
}

func fromFile(p *v1.Pod) *v1.Pod {
	p.Annotations[pod.AnnotationSource] = "file"
	return p
}

func withLimits(name string, kv ...string) v1.Container {
	c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{}}}
	for i := 0; i < len(kv); i += 2 {
		c.Resources.Limits[v1.ResourceName(kv[i])] = quantity.MustParse(kv[i+1])
	}
	return c
}
