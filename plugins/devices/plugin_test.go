package devices

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// A plugin that crashes and starts again may leave the former socket open: podd would follow
// both for as long as it runs.
func TestAnOldPluginsConnectionIsClosed(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		defer r.stop()
		first, second := newFake("a"), newFake("b")
		r.plug(gpu, first)
		synctest.Wait()
		r.plug(gpu, second)
		synctest.Wait()
		for f, want := range map[*fake]int32{first: 1, second: 0} {
			if got := r.closed[f].Load(); got != want {
				t.Errorf("after another one has registered: %v was closed %d times, want %d", f == first, got, want)
			}
		}
		r.Deregister(gpu, gpu)
		synctest.Wait()
		if got := r.closed[second].Load(); got != 1 {
			t.Errorf("after its socket was removed: closed %d times, want once", got)
		}
	})
}

func TestAnOldPluginsConnectionIsClosedOnItsSocket(t *testing.T) {
	r := served(t, "")
	first, second := newFake("a"), newFake("b")
	r.serve(first, "gpu.sock")
	r.registerAs(gpu, "gpu.sock")
	r.eventually("the first one lists", func() bool { return first.count("ListAndWatch") == 1 })
	if err := os.Remove(filepath.Join(r.dir, "gpu.sock")); err != nil { // as a plugin does that starts again
		t.Fatal(err)
	}
	r.serve(second, "gpu.sock")
	r.registerAs(gpu, "gpu.sock")
	r.eventually("the first one has no connection", func() bool { return first.connected() == 0 })
	r.eventually("the second one lists", func() bool { return second.count("ListAndWatch") == 1 })
	if got := second.connected(); got != 1 {
		t.Errorf("the second one has %d connections, want one", got)
	}
	r.stop()
	if got := r.logged.String(); strings.Contains(got, "level=ERROR") {
		t.Errorf("an end that was wanted is an error: the log has %s", got)
	}
}

// What the operator finds in the log when a node has lost its devices.
func TestTheLogSaysWhyAPluginHasEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(r *rig, f *fake)
		want string
	}{
		"it ends":              {func(_ *rig, f *fake) { close(f.lists) }, "error=EOF"},
		"it lists nonsense":    {func(_ *rig, f *fake) { f.lists <- healthy("") }, `a device has the ID \"\": want 1 to 1024 bytes of UTF-8`},
		"another one":          {func(r *rig, _ *fake) { r.plug(gpu, newFake("b")) }, "the plugin has registered again, was removed, or its resource had too many plugins"},
		"its socket is away":   {func(r *rig, _ *fake) { r.Deregister(gpu, gpu) }, "the plugin has registered again, was removed, or its resource had too many plugins"},
		"it refuses the call":  {func(r *rig, _ *fake) { r.plug(gpu, refusing("ListAndWatch")) }, "no ListAndWatch today"},
		"nothing: podd itself": {func(r *rig, _ *fake) { r.stop() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := looped(t, root)
				defer r.stop()
				f := newFake("a")
				r.plug(gpu, f)
				synctest.Wait()
				tc.end(r, f)
				synctest.Wait()
				got := r.logged.String()
				if tc.want == "" && strings.Contains(got, "has ended") || !strings.Contains(got, tc.want) {
					t.Errorf("got %s\nwant %q", got, tc.want)
				}
			})
		})
	}
}

// refusing is a plugin that returns an error for one call.
func refusing(refused string) *fake {
	f := newFake("a")
	f.before = func(_ context.Context, call string) error {
		if call == refused {
			return errors.New("no " + call + " today")
		}
		return nil
	}
	return f
}

// Those of plugins_registry come by Register: its error is what the plugin is told.
func TestPluginsOfTheRegistryRegister(t *testing.T) {
	r := served(t, "")
	well, ill := newFake("a"), refusing("GetDevicePluginOptions")
	r.serve(well, "well.sock")
	r.serve(ill, "ill.sock")
	l, err := net.Listen("unix", filepath.Join(r.dir, "dead.sock"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	at := func(socket string) string { return filepath.Join(r.dir, socket) }
	for name, tc := range map[string]struct {
		resource, endpoint string
		versions           []string
		patience           time.Duration
		want               string
	}{
		"another version":   {gpu, at("well.sock"), []string{"v1alpha", "v1"}, time.Minute, `requested API version "[v1alpha v1]" is not supported by kubelet`},
		"another name":      {"gpu", at("well.sock"), []string{"v1beta1"}, time.Minute, `the ResourceName "gpu" is invalid`},
		"one that is ill":   {gpu, at("ill.sock"), []string{"v1beta1"}, time.Minute, "failed to get device plugin options: rpc error: code = Unknown desc = no GetDevicePluginOptions today"},
		"nobody listens":    {gpu, at("dead.sock"), []string{"v1beta1"}, time.Millisecond, "failed to dial device plugin: context deadline exceeded"},
		"one of it is ours": {gpu, at("well.sock"), []string{"v1alpha", "v1beta1"}, time.Minute, ""},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), tc.patience)
		defer cancel()
		if err := r.Register(ctx, tc.resource, tc.endpoint, tc.versions); (err != nil) != (tc.want != "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	r.eventually("the one that registered lists", func() bool { all, usable := r.amount(gpu); return all == 1 && usable == 1 })
	// Whoever was refused has no connection left.
	r.eventually("the other one has no connection", func() bool { return ill.connected() == 0 })
	r.Deregister(gpu, at("ill.sock"))
	r.Deregister("example.com/unknown", at("well.sock"))
	if _, usable := r.amount(gpu); usable != 1 {
		t.Errorf("after another one has gone: got %d, want 1", usable)
	}
	r.Deregister(gpu, at("well.sock"))
	r.eventually("it is gone", func() bool { _, usable := r.amount(gpu); return usable == 0 })
	r.eventually("it has no connection", func() bool { return well.connected() == 0 })
	r.Deregister(gpu, at("well.sock")) // its socket is removed once more
}

func TestAPluginBeyondTheBoundIsToldSoAndLeftAlone(t *testing.T) {
	r := served(t, "")
	f := newFake("a")
	r.serve(f, "more.sock")
	for i := range maxResources {
		r.plug(fmt.Sprintf("example.com/gpu%d", i), newFake())
	}
	err := r.register(&pluginapi.RegisterRequest{Version: pluginapi.Version, ResourceName: "example.com/more", Endpoint: "more.sock"})
	if err == nil || !strings.Contains(err.Error(), "there are 256 resources of device plugins, which is the most") {
		t.Errorf("got %v", err)
	}
	r.eventually("it has no connection", func() bool { return f.connected() == 0 })
	if _, usable := r.amount("example.com/more"); usable != -1 {
		t.Errorf("got %d of the resource, want none at all", usable)
	}
}

// The metrics of a resource go with it: their number is bounded.
func TestTheMetricsOfPlugins(t *testing.T) {
	r := served(t, "")
	r.serve(newFake("a"), "first.sock")
	r.serve(newFake("b", "c"), "second.sock")
	r.registerAs(gpu, "first.sock")
	r.registerAs(gpu, "second.sock")
	r.eventually("the second one's are listed", func() bool { _, usable := r.amount(gpu); return usable == 2 })
	r.admitted(aPod("p", gpu, "1"))
	const names = "kubelet_device_plugin_registration_total"
	if err := testutil.GatherAndCompare(r.gathers, strings.NewReader(`
# HELP kubelet_device_plugin_registration_total Registrations of device plugins, by resource.
# TYPE kubelet_device_plugin_registration_total counter
kubelet_device_plugin_registration_total{resource_name="example.com/gpu"} 2
`), names); err != nil {
		t.Error(err)
	}
	if n := allocations(t, r); n != 1 {
		t.Errorf("got %d allocations, want one", n)
	}
	r.stop()
	for i := range maxResources - 1 {
		r.plug(fmt.Sprintf("example.com/gpu%d", i), newFake())
	}
	r.resources[gpu].gone = true
	r.plug("example.com/more", newFake()) // takes its place
	if n := allocations(t, r); n != -1 {
		t.Errorf("got %d allocations of a resource that is forgotten, want no metric", n)
	}
	if n, err := testutil.GatherAndCount(r.gathers, names); err != nil || n != 0 {
		t.Errorf("got %d registrations of it, %v, want no metric", n, err)
	}
}

// allocations is how many took their time, by the metric; -1 for no metric.
func allocations(t *testing.T, r *rig) int {
	t.Helper()
	all, err := r.gathers.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "kubelet_device_plugin_alloc_duration_seconds" {
			if got := f.Metric[0].Label[0].GetValue(); got != gpu {
				t.Errorf("got the label %q, want %s", got, gpu)
			}
			return int(f.Metric[0].GetHistogram().GetSampleCount())
		}
	}
	return -1
}

// A node without plugins is one that its operator must hear of.
func TestWhereNoPluginCanRegisterPeopleAreTold(t *testing.T) {
	for name, tc := range map[string]struct {
		blocked string // a path in the root directory
		dir     bool
		want    string
	}{
		"a file in the directory's place":  {"device-plugins", false, "not a directory"},
		"a directory in the socket's":      {"device-plugins/kubelet.sock/sub", true, "file exists"},
		"a directory in the half socket's": {"device-plugins/kubelet.sock.new/sub", true, "address already in use"},
	} {
		r := newRig(t, "")
		at := filepath.Join(r.root, tc.blocked)
		err := os.MkdirAll(filepath.Dir(at), 0o750)
		if tc.dir {
			err = errors.Join(err, os.Mkdir(at, 0o750))
		} else {
			err = errors.Join(err, os.WriteFile(at, nil, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		if all := r.Problems(); len(all) > 0 {
			t.Errorf("%s: before: got %v", name, all)
		}
		r.run(func(ctx context.Context) { _ = r.Run(ctx) })
		r.eventually("there is a problem", func() bool { return len(r.Problems()) == 1 })
		p := r.Problems()[0]
		if p.Origin != r.dir || p.Warning || !strings.HasPrefix(p.Message, "no device plugin can register: ") || !strings.Contains(p.Message, tc.want) {
			t.Errorf("%s: got %+v, want that it says %q", name, p, tc.want)
		}
	}
}

// Whoever starts podd again right after it has ended must not meet its calls.
func TestRunReturnsAfterItsCalls(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "device-plugins"), nil, 0o600); err != nil { // a bubble has no sockets
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, root)
		r.run(func(ctx context.Context) {
			if err := r.Run(ctx); err != nil {
				t.Errorf("got %v, want nil", err)
			}
		})
		f := newFake("a")
		f.respond = func(context.Context, []string) (*pluginapi.ContainerAllocateResponse, error) {
			time.Sleep(time.Minute)
			return &pluginapi.ContainerAllocateResponse{}, nil
		}
		r.plug(gpu, f)
		synctest.Wait()
		if _, err := r.Admit(aPod("p", gpu, "1")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		r.stop()
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it returned after %s, want the minute that the plugin takes", took)
		}
	})
}
