package csi

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
	"sync"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podd/internal/pod"
	"podd/plugins/registry"
)

// fake is a driver and its registrar, on real sockets. What it stages and publishes
// are directories.
type fake struct {
	csipb.UnimplementedIdentityServer
	csipb.UnimplementedNodeServer

	t   *testing.T
	dir string // of its own socket
	// name is what the registrar says; says is what the driver says, if that differs.
	name, says string
	versions   []string
	// socket is what the registrar says; the driver's own is at endpoint.
	socket string
	can    []csipb.NodeServiceCapability_RPC_Type
	stats  *csipb.NodeGetVolumeStatsResponse

	mu sync.Mutex
	// nodeID and limit are what it says of the node.
	nodeID string
	limit  int64
	calls  []proto.Message
	// hooks are called before a method does anything, by its name.
	hooks  map[string]func(context.Context) error
	status chan *registration.RegistrationStatus
	ends   []func()
}

func newFake(t *testing.T, name string, can ...csipb.NodeServiceCapability_RPC_Type) *fake {
	dir, err := os.MkdirTemp("", "csi") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, dir: dir, name: name, says: name, versions: []string{"1.0.0"}, can: can, nodeID: "here",
		hooks: map[string]func(context.Context) error{}, status: make(chan *registration.RegistrationStatus, 100)}
	f.socket = f.endpoint()
	t.Cleanup(func() { f.stop(); os.RemoveAll(dir) })
	return f
}

// endpoint returns the path of the driver's socket.
func (f *fake) endpoint() string { return filepath.Join(f.dir, "csi.sock") }

// serve starts the driver.
func (f *fake) serve() *fake {
	s := grpc.NewServer()
	csipb.RegisterIdentityServer(s, f)
	csipb.RegisterNodeServer(s, f)
	f.listen(s, f.endpoint())
	return f
}

// register starts the registrar in the node's directory.
func (f *fake) register(n *testNode) *fake {
	s := grpc.NewServer()
	registration.RegisterRegistrationServer(s, registrar{f: f})
	if f.socket == "" { // the driver has the same one
		csipb.RegisterIdentityServer(s, f)
		csipb.RegisterNodeServer(s, f)
	}
	f.listen(s, f.registrar(n))
	return f
}

func (f *fake) registrar(n *testNode) string {
	return filepath.Join(n.plugins.Dir(), f.name+"-reg.sock")
}

func (f *fake) listen(s *grpc.Server, path string) {
	f.t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		f.t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends = append(f.ends, s.Stop)
}

// stop stops driver and registrar, which removes their sockets.
func (f *fake) stop() {
	f.mu.Lock()
	ends := f.ends
	f.ends = nil
	f.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// on has a method call do first; an error of do is the method's response.
func (f *fake) on(method string, do func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooks[method] = do
}

// errLies has a method report success without doing anything.
var errLies = errors.New("")

// called records a call and runs its hook.
func (f *fake) called(ctx context.Context, method string, request proto.Message) error {
	f.mu.Lock()
	f.calls = append(f.calls, request)
	hook := f.hooks[method]
	f.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(ctx)
}

// heard returns the names of the calls about volumes so far.
func (f *fake) heard() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, c := range f.calls {
		switch name := string(c.ProtoReflect().Descriptor().Name()); name {
		case "NodeStageVolumeRequest", "NodePublishVolumeRequest", "NodeUnpublishVolumeRequest", "NodeUnstageVolumeRequest", "NodeExpandVolumeRequest":
			names = append(names, name[len("Node"):len(name)-len("VolumeRequest")])
		}
	}
	return names
}

// last returns the last request of a type.
func last[T proto.Message](f *fake) T {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range slices.Backward(f.calls) {
		if request, ok := c.(T); ok {
			return request
		}
	}
	f.t.Fatalf("no call of that type among %v", f.calls)
	panic("unreachable")
}

type registrar struct {
	registration.UnimplementedRegistrationServer
	f *fake
}

func (r registrar) GetInfo(ctx context.Context, q *registration.InfoRequest) (*registration.PluginInfo, error) {
	if err := r.f.called(ctx, "GetInfo", q); err != nil {
		return nil, err
	}
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.f.name, Endpoint: r.f.socket, SupportedVersions: r.f.versions}, nil
}

func (r registrar) NotifyRegistrationStatus(ctx context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if err := r.f.called(ctx, "NotifyRegistrationStatus", s); err != nil {
		return nil, err
	}
	r.f.status <- s
	return &registration.RegistrationStatusResponse{}, nil
}

func (f *fake) GetPluginInfo(ctx context.Context, q *csipb.GetPluginInfoRequest) (*csipb.GetPluginInfoResponse, error) {
	return &csipb.GetPluginInfoResponse{Name: f.says}, f.called(ctx, "GetPluginInfo", q)
}

func (f *fake) NodeGetInfo(ctx context.Context, q *csipb.NodeGetInfoRequest) (*csipb.NodeGetInfoResponse, error) {
	err := f.called(ctx, "NodeGetInfo", q)
	f.mu.Lock()
	defer f.mu.Unlock()
	return &csipb.NodeGetInfoResponse{NodeId: f.nodeID, MaxVolumesPerNode: f.limit}, err
}

func (f *fake) NodeGetCapabilities(ctx context.Context, q *csipb.NodeGetCapabilitiesRequest) (*csipb.NodeGetCapabilitiesResponse, error) {
	answer := &csipb.NodeGetCapabilitiesResponse{}
	for _, c := range f.can {
		answer.Capabilities = append(answer.Capabilities, &csipb.NodeServiceCapability{
			Type: &csipb.NodeServiceCapability_Rpc{Rpc: &csipb.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return answer, f.called(ctx, "NodeGetCapabilities", q)
}

func (f *fake) NodeStageVolume(ctx context.Context, q *csipb.NodeStageVolumeRequest) (*csipb.NodeStageVolumeResponse, error) {
	return &csipb.NodeStageVolumeResponse{}, f.called(ctx, "NodeStageVolume", q)
}

func (f *fake) NodePublishVolume(ctx context.Context, q *csipb.NodePublishVolumeRequest) (*csipb.NodePublishVolumeResponse, error) {
	if err := f.called(ctx, "NodePublishVolume", q); err != nil {
		return nil, err
	}
	return &csipb.NodePublishVolumeResponse{}, os.MkdirAll(q.TargetPath, 0o755)
}

func (f *fake) NodeUnpublishVolume(ctx context.Context, q *csipb.NodeUnpublishVolumeRequest) (*csipb.NodeUnpublishVolumeResponse, error) {
	err := f.called(ctx, "NodeUnpublishVolume", q)
	if errors.Is(err, errLies) {
		return &csipb.NodeUnpublishVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &csipb.NodeUnpublishVolumeResponse{}, removeEmpty(q.TargetPath)
}

func (f *fake) NodeUnstageVolume(ctx context.Context, q *csipb.NodeUnstageVolumeRequest) (*csipb.NodeUnstageVolumeResponse, error) {
	return &csipb.NodeUnstageVolumeResponse{}, f.called(ctx, "NodeUnstageVolume", q)
}

func (f *fake) NodeExpandVolume(ctx context.Context, q *csipb.NodeExpandVolumeRequest) (*csipb.NodeExpandVolumeResponse, error) {
	return &csipb.NodeExpandVolumeResponse{}, f.called(ctx, "NodeExpandVolume", q)
}

func (f *fake) NodeGetVolumeStats(ctx context.Context, q *csipb.NodeGetVolumeStatsRequest) (*csipb.NodeGetVolumeStatsResponse, error) {
	err := f.called(ctx, "NodeGetVolumeStats", q)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats, err
}

// testNode is a node that runs Volumes.
type testNode struct {
	*Volumes
	plugins *registry.Registry
	t       *testing.T
	objects *testObjects
	events  *testEvents
	woken   chan pod.UID
	gathers *prometheus.Registry
	stop    func()
}

type testObjects struct {
	mu      sync.Mutex
	drivers map[string]*storagev1.CSIDriver
	secrets map[string]*v1.Secret
	err     error // for CSIDrivers
}

func (o *testObjects) CSIDriver(_ context.Context, _ *v1.Pod, name string) (*storagev1.CSIDriver, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := o.drivers[name]; d != nil || o.err != nil {
		return d, o.err
	}
	return nil, fmt.Errorf("csidriver %q %w", name, pod.ErrNotFound)
}

func (o *testObjects) KnownCSIDriver(p *v1.Pod, name string) (*storagev1.CSIDriver, error) {
	return o.CSIDriver(context.Background(), p, name)
}

func (o *testObjects) SecretOf(_ context.Context, _ *v1.Pod, namespace, name string) (*v1.Secret, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.secrets[namespace+"/"+name]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("secret %q %w", name, pod.ErrNotFound)
}

// testEvents are the events of pods and of claims.
type testEvents struct {
	mu   sync.Mutex
	told []string
}

func (e *testEvents) Event(p *v1.Pod, eventType, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, fmt.Sprintf("%s: %s %s %s", p.UID, eventType, reason, message))
}

func (e *testEvents) ClaimEvent(c *v1.PersistentVolumeClaim, eventType, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, fmt.Sprintf("claim %s: %s %s %s", c.Name, eventType, reason, message))
}

func (e *testEvents) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.told)
}

func (n *testNode) Changed(uid pod.UID) { n.woken <- uid }

// newNode returns a running node; root is "" for a new root directory.
func newNode(t *testing.T, root string, change ...func(*Volumes)) *testNode {
	t.Helper()
	return nodeOf(t, root, Config{}, change...)
}

// nodeOf is newNode with a cluster.
func nodeOf(t *testing.T, root string, c Config, change ...func(*Volumes)) *testNode {
	t.Helper()
	if root == "" {
		var err error
		if root, err = os.MkdirTemp("", "csi"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(root) })
	}
	n := &testNode{t: t, woken: make(chan pod.UID, 100), events: &testEvents{}, gathers: prometheus.NewRegistry(), objects: &testObjects{drivers: map[string]*storagev1.CSIDriver{}, secrets: map[string]*v1.Secret{}}}
	var err error
	c.RootDir, c.NodeName, c.Objects, c.Waker, c.Events, c.Metrics = root, "node", n.objects, n, n.events, n.gathers
	c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	if n.plugins, err = registry.New(filepath.Join(root, "plugins_registry"), c.Log); err != nil {
		t.Fatal(err)
	}
	c.Plugins = n.plugins
	if c.Cluster == nil {
		c.Cluster = NoCluster
	}
	if n.Volumes, err = New(c); err != nil {
		t.Fatal(err)
	}
	n.plugins.Handle(registration.CSIPlugin, n)
	for _, f := range change {
		f(n.Volumes)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = n.Run(ctx) })
	run.Go(func() { _ = n.plugins.Run(ctx) })
	n.stop = func() { cancel(); run.Wait() }
	t.Cleanup(n.stop)
	return n
}

// eventually waits for something that happens in the background.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// has waits until a driver is registered.
func (n *testNode) has(name string) {
	n.t.Helper()
	eventually(n.t, name+" registers", func() bool { return slices.Contains(n.Drivers(), name) })
}

func aPod(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: types.UID(uid)}, Spec: v1.PodSpec{ServiceAccountName: "sa"}}
}

func (n *testNode) inline(uid, driver string) pod.CSIVolume {
	return pod.CSIVolume{Pod: aPod(uid), Name: "v", Dir: n.volumeDir(uid, "v"),
		Inline: &v1.CSIVolumeSource{Driver: driver, VolumeAttributes: map[string]string{"size": "small"}}}
}

func (n *testNode) persistent(uid, driver, handle string) pod.CSIVolume {
	return pod.CSIVolume{Pod: aPod(uid), Name: "pv", Dir: n.volumeDir(uid, "pv"), Persistent: &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, MountOptions: []string{"noatime"},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle, FSType: "ext4", VolumeAttributes: map[string]string{"share": "a"}}},
		},
	}}
}

func (n *testNode) volumeDir(uid, name string) string {
	return filepath.Join(n.root, "pods", uid, "volumes/kubernetes.io~csi", name)
}

// allow adds a CSIDriver with these volumeLifecycleModes.
func (n *testNode) allow(name string, change func(*storagev1.CSIDriverSpec), modes ...storagev1.VolumeLifecycleMode) {
	no := false
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no, VolumeLifecycleModes: modes}}
	if change != nil {
		change(&d.Spec)
	}
	n.objects.mu.Lock()
	defer n.objects.mu.Unlock()
	n.objects.drivers[name] = d
}

// SetUp is that of Volumes; what could not be set up has no owner.
func (n *testNode) SetUp(ctx context.Context, v pod.CSIVolume) (podOwns bool, err error) {
	n.t.Helper()
	if podOwns, err = n.Volumes.SetUp(ctx, v); podOwns && err != nil {
		n.t.Errorf("SetUp says that podd applies the fsGroup, and: %v", err)
	}
	return podOwns, err
}

func (n *testNode) mustSetUp(v pod.CSIVolume) (podOwns bool) {
	n.t.Helper()
	owns, err := n.SetUp(n.t.Context(), v)
	if err != nil {
		n.t.Fatalf("SetUp: %v", err)
	}
	return owns
}

func (n *testNode) mustTearDown(v pod.CSIVolume) {
	n.t.Helper()
	if err := n.TearDown(n.t.Context(), v.Dir); err != nil {
		n.t.Fatalf("TearDown: %v", err)
	}
	if _, err := os.Lstat(v.Dir); !os.IsNotExist(err) {
		n.t.Errorf("%s is still there (%v)", v.Dir, err)
	}
}
