package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"podd/test/cluster"
	"podd/test/e2e/testnode"
)

// devicePlugin is a device plugin of the test's own, with its socket in podd's directory. Its
// devices are /dev/null under another name.
type devicePlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	registration.UnimplementedRegistrationServer
	*env
	resource, dir string
	cdi           string // the kind of its CDI devices; empty for none
	endpoint      string // the name of its socket

	mu     sync.Mutex
	list   []*pluginapi.Device
	change chan struct{} // closed when list changes
	server *grpc.Server
}

func (e *env) newDevicePlugin(resource string, ids ...string) *devicePlugin {
	p := &devicePlugin{env: e, resource: resource, endpoint: "gpu.sock", dir: filepath.Join(e.podd.Dir, "plugin"), change: make(chan struct{})}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		e.Fatal(err)
	}
	for _, id := range ids {
		p.list = append(p.list, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
		if err := os.WriteFile(filepath.Join(p.dir, id), []byte(id), 0o644); err != nil {
			e.Fatal(err)
		}
	}
	e.Cleanup(p.stop)
	return p
}

// withCDI describes the plugin's devices to the runtime, too.
func (p *devicePlugin) withCDI() *devicePlugin {
	p.Helper()
	p.cdi = fmt.Sprintf("node%d.podd.example.com/gpu", p.node.Number)
	var all []string
	for _, d := range p.list {
		all = append(all, fmt.Sprintf(`{"name":%q,"containerEdits":{"env":["CDI_GPU=%s"]}}`, d.ID, d.ID))
	}
	file := fmt.Sprintf("/var/run/cdi/podd-test-node%d.json", p.node.Number)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":%q,"devices":[%s]}`, p.cdi, strings.Join(all, ","))), 0o644)
	}
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { os.Remove(file) })
	return p
}

func (p *devicePlugin) socket() string {
	return filepath.Join(p.node.Root(), "device-plugins", p.endpoint)
}

// start serves the plugin and registers it with podd. A podd that has just been started removes
// the sockets that it finds, so that whoever is not registered listens anew.
func (p *devicePlugin) start() {
	p.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.node.Root(), "device-plugins", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.Fatal(err)
	}
	defer conn.Close()
	p.eventually("the plugin registers", func(ctx context.Context) error {
		p.serve(p.socket())
		_, err := pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
			Version: pluginapi.Version, ResourceName: p.resource, Endpoint: filepath.Base(p.socket()),
		})
		return err
	})
}

func (p *devicePlugin) serve(socket string) {
	p.Helper()
	p.stop()
	var l net.Listener
	p.eventually("the directory for plugins is there", func(context.Context) (err error) {
		_ = os.Remove(socket)
		l, err = net.Listen("unix", socket)
		return err
	})
	s := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(s, p)
	registration.RegisterRegistrationServer(s, p)
	p.mu.Lock()
	p.server = s
	p.mu.Unlock()
	go func() { _ = s.Serve(l) }()
}

// stop ends the plugin, if it runs.
func (p *devicePlugin) stop() {
	p.mu.Lock()
	s := p.server
	p.server = nil
	p.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

// becomes changes the health of a device.
func (p *devicePlugin) becomes(id, health string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var next []*pluginapi.Device
	for _, d := range p.list {
		if d.ID == id {
			d = &pluginapi.Device{ID: id, Health: health}
		}
		next = append(next, d)
	}
	p.list = next
	close(p.change)
	p.change = make(chan struct{})
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p *devicePlugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		p.mu.Lock()
		list, change := p.list, p.change
		p.mu.Unlock()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
			return err
		}
		select {
		case <-change:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *devicePlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	id := r.ContainerRequests[0].DevicesIds[0]
	one := &pluginapi.ContainerAllocateResponse{
		Envs: map[string]string{"GPU": id}, Annotations: map[string]string{"gpu.example.com/id": id},
		Devices: []*pluginapi.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/gpu0", Permissions: "rw"}},
		Mounts:  []*pluginapi.Mount{{HostPath: filepath.Join(p.dir, id), ContainerPath: "/gpu-id", ReadOnly: true}},
	}
	if p.cdi != "" {
		one.CdiDevices = []*pluginapi.CDIDevice{{Name: p.cdi + "=" + id}}
	}
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{one}}, nil
}

// GetInfo is that of a registrar in plugins_registry.
func (p *devicePlugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.DevicePlugin, Name: p.resource, SupportedVersions: []string{pluginapi.Version}}, nil
}

func (p *devicePlugin) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		p.Errorf("the plugin is not registered: %s", s.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// wanting is a pod whose container wants so many devices, and marks what it has.
func (e *env) wanting(name, resource, count string) string {
	text := e.podOf(name, "echo $GPU $CDI_GPU $(cat /gpu-id) > /out/"+name+".has; : > /dev/gpu0; : > /out/"+name+"; ${REST}")
	return replaced(e, text, "    volumeMounts:", "    resources: {limits: {"+resource+": "+count+"}}\n    volumeMounts:")
}

// healthOf waits until a pod's container shows one device with this health, and returns its ID.
func (e *env) healthOf(name string, health v1.ResourceHealthStatus) (id string) {
	e.Helper()
	e.waitPod(name, "with a device that is "+string(health), func(p *v1.Pod) error {
		all := firstContainer(p).AllocatedResourcesStatus
		if len(all) != 1 || len(all[0].Resources) != 1 || all[0].Resources[0].Health != health {
			return fmt.Errorf("it has %v", all)
		}
		id = string(all[0].Resources[0].ResourceID)
		return nil
	})
	return id
}

// devicesOf asks the pod resources API which devices a pod's container has.
func (e *env) devicesOf(p *v1.Pod) (ids []string) {
	e.Helper()
	r := resourcesOf(e, func(ctx context.Context, c podresources.PodResourcesListerClient) (*podresources.ListPodResourcesResponse, error) {
		return c.List(ctx, &podresources.ListPodResourcesRequest{})
	})
	for _, one := range r.PodResources {
		if one.Name != p.Name || one.Namespace != p.Namespace {
			continue
		}
		for _, c := range one.Containers {
			for _, d := range c.Devices {
				ids = append(ids, d.DeviceIds...)
			}
		}
	}
	return ids
}

// resourcesOf calls the pod resources API.
func resourcesOf[R any](e *env, call func(ctx context.Context, c podresources.PodResourcesListerClient) (R, error)) (r R) {
	e.Helper()
	socket := filepath.Join(e.node.Root(), "pod-resources", "kubelet.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		e.Fatal(err)
	}
	defer conn.Close()
	e.eventually("the pod resources API answers", func(ctx context.Context) (err error) {
		r, err = call(ctx, podresources.NewPodResourcesListerClient(conn))
		return err
	})
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		e.Errorf("the socket is %v, %v", info, err)
	}
	return r
}

// Two pods get a device, a third says why it has none until one is free. podd is killed in between: nobody loses what he has, and the
// health of the devices is shown.
func TestPodsOfThisMachineHaveTheDevicesOfAPlugin(t *testing.T) {
	e := begin(t)
	const gpu = "example.com/gpu"
	plugin := e.newDevicePlugin(gpu, "a", "b").withCDI()
	plugin.start()
	e.allocatable(2)
	e.write("web.yaml", e.wanting("web", gpu, "1"))
	e.mark("web")
	web := e.ready("web")
	has := strings.TrimSpace(e.contents("web.has"))
	if id := e.healthOf("web", v1.ResourceHealthStatusHealthy); has != id+" "+id+" "+id {
		t.Errorf("the container has %q, want what the plugin and CDI say of device %s", has, id)
	}
	if got := e.devicesOf(web); !slices.Equal(got, []string{has[:1]}) {
		t.Errorf("the pod resources API says %q", got)
	}
	e.write("two.yaml", e.wanting("two", gpu, "1"))
	e.mark("two")
	e.write("three.yaml", e.wanting("three", gpu, "1"))
	const none = "Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0, which is unexpected"
	e.waitPod("three", "rejected", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "UnexpectedAdmissionError" || p.Status.Message != "Pod was rejected: "+none {
			return fmt.Errorf("it is %s", describe(p))
		}
		return nil
	})
	e.event("three", "UnexpectedAdmissionError", none)
	e.shows(none)
	plugin.becomes(has[:1], pluginapi.Unhealthy)
	e.healthOf("web", v1.ResourceHealthStatusUnhealthy)

	e.kill()
	e.start()
	// Until its plugin has registered again, nobody knows; it was asked to by the removal of its
	// socket.
	e.healthOf("web", v1.ResourceHealthStatusUnknown)
	e.eventually("the plugin's old socket is removed", func(context.Context) error {
		if _, err := os.Lstat(plugin.socket()); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	plugin.becomes(has[:1], pluginapi.Healthy)
	plugin.start()
	if id := e.healthOf("web", v1.ResourceHealthStatusHealthy); id != has[:1] {
		t.Errorf("after a crash of podd the pod has device %s", id)
	}
	if again := e.ready("web"); containerID(again, "main") != containerID(web, "main") || again.UID != web.UID {
		t.Errorf("the pod did not stay as it was: %s", describe(again))
	}
	e.waitPod("three", "still rejected", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodFailed {
			return fmt.Errorf("it is %s", describe(p))
		}
		return nil
	})
	// A container that ends comes back with what it had.
	if err := os.Remove(filepath.Join(e.out, "web.has")); err != nil {
		t.Fatal(err)
	}
	e.terminate(web, "main")
	e.eventually("the container is restarted", func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(e.out, "web.has"))
		if err == nil && strings.TrimSpace(string(text)) != has {
			err = fmt.Errorf("it has %q, want %q", text, has)
		}
		return err
	})
	// A plugin that ends leaves everybody what they have.
	plugin.stop()
	e.healthOf("web", v1.ResourceHealthStatusUnknown)
	plugin.start()
	e.remove("two.yaml")
	e.mark("three")
	if got := strings.TrimSpace(e.contents("three.has")); got == has || got == "" {
		t.Errorf("the third pod has %q, the first one %q", got, has)
	}
	e.remove("web.yaml", "three.yaml")
	if err := e.waitNothingLeft(t.Context()); err != nil {
		t.Error(err)
	}
	e.eventually("what pods had is forgotten", func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(e.node.Root(), "devices.json"))
		if err == nil && strings.Contains(string(text), "main") {
			err = fmt.Errorf("devices.json says %s", text)
		}
		return err
	})
}

// A DaemonSet with maxSurge starts the new plugin before it ends the old one, or gives the new one
// up (upstream's "Device Plugin Multiple"). Pods get devices all the time.
func TestADevicePluginIsUpdatedWithoutAGap(t *testing.T) {
	e := begin(t)
	const gpu = "example.com/gpu"
	former, next := e.newDevicePlugin(gpu, "a", "b"), e.newDevicePlugin(gpu, "a", "b", "c")
	next.endpoint = "next.sock"
	former.start()
	e.allocatable(2)
	has := map[string]string{}
	runs := func(name string) {
		t.Helper()
		e.write(name+".yaml", e.wanting(name, gpu, "1"))
		e.mark(name)
		id := e.healthOf(name, v1.ResourceHealthStatusHealthy)
		for other, theirs := range has {
			if theirs == id {
				t.Errorf("pods %s and %s both have device %s", name, other, id)
			}
		}
		has[name] = id
	}
	runs("one")
	next.start()
	e.allocatable(3)
	runs("two")
	former.stop()
	runs("three")
	e.allocatable(3)
	former.start()
	next.stop() // the update is undone
	e.allocatable(2)
	for name, id := range has {
		want := v1.ResourceHealthStatusHealthy
		if id == "c" {
			want = v1.ResourceHealthStatusUnknown
		}
		if again := e.healthOf(name, want); again != id {
			t.Errorf("pod %s had device %s and has %s", name, id, again)
		}
	}
	e.remove("one.yaml", "two.yaml", "three.yaml")
	if err := e.waitNothingLeft(t.Context()); err != nil {
		t.Error(err)
	}
}

// samplePlugin builds upstream's, once for all tests.
var samplePlugin = sync.OnceValues(func() (string, error) {
	repo, err := testnode.RepoRoot()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(base, "sample-device-plugin", "plugin")
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", binary, "k8s.io/kubernetes/test/images/sample-device-plugin")
	cmd.Dir, cmd.Env = filepath.Join(repo, "test/deviceplugin"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build upstream's device plugin: %w\n%s", err, out)
	}
	return binary, nil
})

// Upstream's plugin registers from inside a pod, and again after podd was restarted (ten seconds
// after it has seen the new kubelet.sock). It makes the files of its devices in /tmp.
func TestUpstreamsDevicePluginRunsAsAPod(t *testing.T) {
	e := begin(t)
	binary, err := samplePlugin()
	if err != nil {
		t.Fatal(err)
	}
	const resource = "example.com/resource"
	e.write("plugin.yaml", e.vars("${BIN}", filepath.Dir(binary), "${SOCKETS}", filepath.Join(e.node.Root(), "device-plugins")).Replace(`apiVersion: v1
kind: Pod
metadata: {name: plugin}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/plugin/plugin]
    securityContext: {privileged: true}
    volumeMounts:
    - {name: binary, mountPath: /bin/plugin, readOnly: true}
    - {name: sockets, mountPath: /var/lib/kubelet/device-plugins}
    - {name: devices, mountPath: /tmp}
  volumes:
  - {name: binary, hostPath: {path: ${BIN}, type: Directory}}
  - {name: sockets, hostPath: {path: ${SOCKETS}, type: Directory}}
  - {name: devices, hostPath: {path: /tmp, type: Directory}}
`))
	e.allocatable(2)
	user := replaced(e, e.podOf("user", "ls /tmp/Dev-1 /tmp/Dev-2 > /out/has; : > /out/user; ${REST}"),
		"    volumeMounts:", "    resources: {limits: {"+resource+": 2}}\n    volumeMounts:")
	e.write("user.yaml", user)
	e.mark("user")
	p := e.ready("user")
	if got := e.contents("has"); got != "/tmp/Dev-1\n/tmp/Dev-2\n" {
		t.Errorf("the container has %q", got)
	}
	if got := e.devicesOf(p); !slices.Equal(got, []string{"Dev-1", "Dev-2"}) {
		t.Errorf("the pod resources API says %q", got)
	}
	healthy := func(want v1.ResourceHealthStatus) {
		e.waitPod("user", "with devices that are "+string(want), func(p *v1.Pod) error {
			all := firstContainer(p).AllocatedResourcesStatus
			if len(all) == 0 {
				return errors.New("it has none")
			}
			for _, r := range all[0].Resources {
				if r.Health != want {
					return fmt.Errorf("device %s is %s", r.ResourceID, r.Health)
				}
			}
			return nil
		})
	}
	healthy(v1.ResourceHealthStatusHealthy)
	e.kill()
	e.start()
	healthy(v1.ResourceHealthStatusUnknown)
	healthy(v1.ResourceHealthStatusHealthy)
	if again := e.ready("user"); containerID(again, "main") != containerID(p, "main") {
		t.Errorf("the pod did not stay as it was: %s", describe(again))
	}
	e.allocatable(2)
	e.remove("user.yaml")
	e.podGone("user")
	for _, file := range []string{"/tmp/Dev-1", "/tmp/Dev-2"} {
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
}

// allocatable waits until so many devices are healthy.
func (e *env) allocatable(n int) {
	e.Helper()
	e.eventually(fmt.Sprintf("%d devices are allocatable", n), func(context.Context) error {
		r := resourcesOf(e, func(ctx context.Context, c podresources.PodResourcesListerClient) (*podresources.AllocatableResourcesResponse, error) {
			return c.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
		})
		if len(r.Devices) != n {
			return fmt.Errorf("they are %v", r.Devices)
		}
		return nil
	})
}

// The Node shows the devices; a pod that the cluster binds has one, and one that cannot have its
// devices fails. The plugin registers in plugins_registry.
func TestDevicesOfAClustersNode(t *testing.T) {
	m := join(t)
	const gpu = "example.com/gpu"
	amounts := func(capacity, allocatable int64) {
		t.Helper()
		m.eventually(fmt.Sprintf("the Node has %d devices, %d of them allocatable", capacity, allocatable), func(ctx context.Context) error {
			var n v1.Node
			if err := m.server.Client().Get(ctx, cluster.Object{"kind": "Node", "metadata": map[string]any{"name": m.podd.NodeName()}}, &n); err != nil {
				return err
			}
			c, a := n.Status.Capacity[gpu], n.Status.Allocatable[gpu]
			if _, there := n.Status.Capacity[gpu]; !there || c.Value() != capacity || a.Value() != allocatable {
				return fmt.Errorf("it has %s and %s", c.String(), a.String())
			}
			return nil
		})
	}
	plugin := m.newDevicePlugin(gpu, "a", "b")
	socket := filepath.Join(m.node.Root(), "plugins_registry", "gpu.sock")
	plugin.serve(socket)
	amounts(2, 2)
	m.bind(m.wanting("web", gpu, "1"))
	web := m.shown("web", "ready", isReady)
	if s := web.Status.ContainerStatuses[0].AllocatedResourcesStatus; len(s) != 1 || s[0].Name != gpu || len(s[0].Resources) != 1 || s[0].Resources[0].Health != v1.ResourceHealthStatusHealthy {
		t.Errorf("the status has %v", s)
	}
	m.mark("web")
	id := strings.TrimSpace(m.contents("web.has"))[:1]
	if got := m.devicesOf(web); !slices.Equal(got, []string{id}) {
		t.Errorf("the pod resources API says %q, want %s", got, id)
	}
	one := resourcesOf(m.env, func(ctx context.Context, c podresources.PodResourcesListerClient) (*podresources.GetPodResourcesResponse, error) {
		return c.Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: "default", PodName: "web"})
	})
	if c := one.PodResources.GetContainers(); len(c) != 1 || len(c[0].Devices) != 1 || c[0].Devices[0].ResourceName != gpu {
		t.Errorf("of the pod alone it says %v", one)
	}
	m.bind(m.wanting("many", gpu, "2"))
	many := m.shown("many", "failed", isIn(v1.PodFailed))
	if many.Status.Reason != "UnexpectedAdmissionError" || !strings.HasPrefix(many.Status.Message, "Pod was rejected: Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1") {
		t.Errorf("it is %s", describe(many))
	}
	plugin.becomes("b", pluginapi.Unhealthy)
	amounts(2, 1)
	m.kill()
	m.start()
	amounts(2, 1)
	m.shown("web", "ready", isReady)
	if got := m.devicesOf(web); !slices.Equal(got, []string{id}) {
		t.Errorf("after a crash of podd it says %q, want %s", got, id)
	}
	// Its socket goes: its devices are unhealthy, and none is allocatable.
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	amounts(2, 0)
	m.shown("web", "with a device of which nobody knows", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses[0].AllocatedResourcesStatus; len(s) != 1 || s[0].Resources[0].Health != v1.ResourceHealthStatusUnknown {
			return fmt.Errorf("the status has %v", s)
		}
		return isReady(p)
	})
	m.delete("web", "many")
	m.gone("web", "many")
	if err := m.waitNothingLeft(t.Context()); err != nil {
		t.Error(err)
	}
}
