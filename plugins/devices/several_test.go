package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/pod"
)

// step is something that happens to the plugins of a resource, by the plugin's name.
type step struct {
	plugin string
	lists  []string // the healthy devices that it lists now; nil for none
	ends   bool
}

func registers(plugin string) step { return step{plugin: plugin} }
func lists(plugin string, devices ...string) step {
	return step{plugin: plugin, lists: append([]string{}, devices...)}
}
func ends(plugin string) step { return step{plugin: plugin, ends: true} }

// Which plugin podd calls, and whose devices the node has, while a resource has several plugins
// (https://github.com/kubernetes/kubernetes/pull/135437; upstream's "Device Plugin Multiple").
func TestWhichOfSeveralPluginsServesAResource(t *testing.T) {
	for name, tc := range map[string]struct {
		steps   []step
		serves  string   // which plugin is asked to allocate; empty for none
		devices []string // that are healthy
	}{
		"the newest one":                     {[]step{registers("1"), lists("1", "a", "b"), registers("2"), lists("2", "a", "b", "c")}, "2", []string{"a", "b", "c"}},
		"the old one leaves: a rollout":      {[]step{registers("1"), lists("1", "a", "b"), registers("2"), lists("2", "a", "b"), ends("1")}, "2", []string{"a", "b"}},
		"the new one leaves":                 {[]step{registers("1"), lists("1", "a", "b"), registers("2"), lists("2", "c"), ends("2")}, "1", []string{"a", "b"}},
		"the new one lists nothing yet":      {[]step{registers("1"), lists("1", "a", "b"), registers("2")}, "1", []string{"a", "b"}},
		"it leaves without a list":           {[]step{registers("1"), lists("1", "a", "b"), registers("2"), ends("2")}, "1", []string{"a", "b"}},
		"the old one leaves before its list": {[]step{registers("1"), lists("1", "a", "b"), registers("2"), ends("1")}, "2", []string{"a", "b"}},
		"the old one lists again":            {[]step{registers("1"), lists("1", "a"), registers("2"), lists("2", "a", "b"), lists("1", "x")}, "2", []string{"a", "b"}},
		"… and has another turn":             {[]step{registers("1"), lists("1", "a"), registers("2"), lists("2", "a", "b"), lists("1", "x"), ends("2")}, "1", []string{"x"}},
		"one between two":                    {[]step{registers("1"), lists("1", "a"), registers("2"), lists("2", "b"), registers("3"), lists("3", "c"), ends("2"), ends("3")}, "1", []string{"a"}},
		"the newest of those that are left":  {[]step{registers("1"), lists("1", "a"), registers("2"), lists("2", "b"), registers("3"), lists("3", "c"), ends("3")}, "2", []string{"b"}},
		"it lists no device":                 {[]step{registers("1"), lists("1", "a"), registers("2"), lists("2")}, "2", nil},
		"the last one leaves":                {[]step{registers("1"), lists("1", "a"), registers("2"), lists("2", "b"), ends("1"), ends("2")}, "", nil},
		"at the same endpoint":               {[]step{registers("1"), lists("1", "a"), registers("2"), lists("2", "b"), registers("2")}, "1", []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := looped(t, root)
				defer r.stop()
				plugins := map[string]*fake{}
				for _, s := range tc.steps {
					switch f := plugins[s.plugin]; {
					case s.ends:
						close(f.lists)
					case s.lists != nil:
						f.lists <- healthy(s.lists...)
					default:
						f = &fake{lists: make(chan []*pluginapi.Device, 100)}
						plugins[s.plugin] = f
						r.plugAt(gpu, s.plugin, f)
					}
					synctest.Wait()
				}
				if got := r.resources[gpu].healthyIDs(); !slices.Equal(got, tc.devices) {
					t.Errorf("the healthy devices are %q, want %q", got, tc.devices)
				}
				_, _ = r.Admit(aPod("p", gpu, "1"))
				synctest.Wait()
				for _, plugin := range slices.Sorted(maps.Keys(plugins)) {
					want := 0
					if plugin == tc.serves && len(tc.devices) > 0 {
						want = 1
					}
					if got := plugins[plugin].count("Allocate"); got != want {
						t.Errorf("plugin %s was asked to allocate %d times, want %d", plugin, got, want)
					}
				}
			})
		})
	}
}

// What pods have and see during a rollout: nothing changes for those whose devices both plugins
// list.
func TestARolloutOfAPluginChangesNothingForPods(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		former := newFake("a", "b")
		r := plugged(t, root, former)
		defer r.stop()
		p := aPod("p", gpu, "1")
		_, _ = r.Admit(p)
		synctest.Wait()
		check := func(when string, want v1.ResourceHealthStatus) {
			t.Helper()
			synctest.Wait()
			h := r.Health(p.UID)["c"]
			if len(h) != 1 || len(h[0].Resources) != 1 || h[0].Resources[0].ResourceID != "a" || h[0].Resources[0].Health != want {
				t.Errorf("%s: got %v, want device a, %s", when, h, want)
			}
			if n := len(r.AllocatableDevices()); want == v1.ResourceHealthStatusHealthy && n != 2 {
				t.Errorf("%s: the pod resources API has %d devices, want 2", when, n)
			}
		}
		check("at first", v1.ResourceHealthStatusHealthy)
		next := newFake()
		<-next.lists
		r.plugAt(gpu, "next", next)
		check("before the new one has listed", v1.ResourceHealthStatusHealthy)
		next.lists <- healthy("a", "b")
		check("with both", v1.ResourceHealthStatusHealthy)
		if all, usable := r.amount(gpu); all != 2 || usable != 2 {
			t.Errorf("with both the node has %d, %d healthy: want 2, as both list the same devices", all, usable)
		}
		close(former.lists)
		check("when the former one has ended", v1.ResourceHealthStatusHealthy)
		if got := r.logged.String(); !strings.Contains(got, `level=INFO msg="device plugin has ended: its resource still has another plugin" resource=example.com/gpu`) || strings.Contains(got, "unhealthy") {
			t.Errorf("the log has %s", got)
		}
		if waits, err := r.Admit(p); waits != "" || err != nil {
			t.Errorf("the pod is not admitted again: %q, %v", waits, err)
		}
		next.lists <- []*pluginapi.Device{{ID: "a", Health: pluginapi.Unhealthy}, {ID: "b", Health: pluginapi.Healthy}}
		check("when the device is ill", v1.ResourceHealthStatusUnhealthy)
		close(next.lists)
		check("when the new one has ended, too", v1.ResourceHealthStatusUnknown)
		if all, usable := r.amount(gpu); all != 2 || usable != 0 {
			t.Errorf("without a plugin the node has %d, %d healthy", all, usable)
		}
	})
}

// Each plugin says what it wants besides Allocate.
func TestEachOfSeveralPluginsHasItsOwnOptions(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		former := newFake("a")
		former.options.PreStartRequired = true
		r := plugged(t, root, former)
		defer r.stop()
		p := aPod("p", gpu, "1")
		_, _ = r.Admit(p)
		synctest.Wait()
		next := newFake("a")
		r.plugAt(gpu, "next", next)
		synctest.Wait()
		starts := func(want map[*fake]int) {
			t.Helper()
			if c, err := r.Container(t.Context(), p, &p.Spec.Containers[0]); err != nil || !c.Ready {
				t.Errorf("got %+v, %v", c, err)
			}
			for f, n := range want {
				if got := f.count("PreStartContainer"); got != n {
					t.Errorf("the former one %v: %d calls of PreStartContainer, want %d", f == former, got, n)
				}
			}
		}
		starts(map[*fake]int{former: 0, next: 0})
		close(next.lists)
		synctest.Wait()
		starts(map[*fake]int{former: 1, next: 0})
		close(former.lists)
		synctest.Wait()
		if _, err := r.Container(t.Context(), p, &p.Spec.Containers[0]); err == nil || !strings.Contains(err.Error(), "endpoint example.com/gpu has been stopped") {
			t.Errorf("without a plugin: got %v", err)
		}
	})
}

// A plugin that registers under another name each time it crashes, and leaves its sockets open,
// must not have podd keep connections without end.
func TestThePluginsOfAResourceAreBounded(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		serving := newFake("a", "b")
		r := plugged(t, root, serving)
		defer r.stop()
		var mute []*fake
		for i := range maxPlugins + 2 {
			f := &fake{lists: make(chan []*pluginapi.Device)}
			mute = append(mute, f)
			r.plugAt(gpu, fmt.Sprint(i), f)
			synctest.Wait()
		}
		if n := len(r.resources[gpu].plugins); n != maxPlugins {
			t.Errorf("there are %d plugins, want %d", n, maxPlugins)
		}
		if n := r.closed[serving].Load(); n != 0 {
			t.Error("the connection to the one that serves the resource is closed")
		}
		for i, f := range mute {
			if n := r.closed[f].Load(); (n == 1) != (i < 3) {
				t.Errorf("the connection to plugin %d was closed %d times; want the three oldest ones closed once", i, n)
			}
		}
		if _, usable := r.amount(gpu); usable != 2 {
			t.Errorf("the node has %d devices, want 2", usable)
		}
		if got := r.logged.String(); strings.Count(got, "a resource has too many device plugins: dropping the oldest standby") != 3 {
			t.Errorf("the log has %s", got)
		}
	})
}

// A rollout with sockets: plugins that come and go leave no connection, and pods get devices all
// the time. podd is started again in between.
func TestPluginsOnSocketsTakeTurns(t *testing.T) {
	r := served(t, "")
	first, second := newFake("a", "b", "c"), newFake("a", "b", "c")
	firstServer := r.serve(first, "first.sock")
	r.registerAs(gpu, "first.sock")
	r.eventually("the first one's devices are there", func() bool { _, usable := r.amount(gpu); return usable == 3 })
	r.admitted(aPod("p1", gpu, "1"))
	secondServer := r.serve(second, "second.sock")
	r.registerAs(gpu, "second.sock")
	r.eventually("the second one serves", func() bool {
		r.Manager.mu.Lock()
		defer r.Manager.mu.Unlock()
		return r.resources[gpu].serving().endpoint == filepath.Join(r.dir, "second.sock")
	})
	if first.connected() != 1 || second.connected() != 1 {
		t.Errorf("got %d and %d connections, want one each", first.connected(), second.connected())
	}
	r.admitted(aPod("p2", gpu, "1"))
	firstServer.Stop()
	r.eventually("the first one is forgotten", func() bool {
		r.Manager.mu.Lock()
		defer r.Manager.mu.Unlock()
		return len(r.resources[gpu].plugins) == 1
	})
	r.admitted(aPod("p3", gpu, "1"))
	if first.count("Allocate") != 1 || second.count("Allocate") != 2 {
		t.Errorf("they were asked to allocate %d and %d times, want 1 and 2", first.count("Allocate"), second.count("Allocate"))
	}
	if _, usable := r.amount(gpu); usable != 3 {
		t.Errorf("the node has %d devices, want 3", usable)
	}
	r.stop()
	r.eventually("a podd that ends has no connection", func() bool { return second.connected() == 0 })
	secondServer.Stop()

	// What waits for kubelet.sock must find the next podd's.
	if err := os.Remove(filepath.Join(r.dir, "kubelet.sock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	next := served(t, r.root)
	for _, name := range []string{"p1", "p2", "p3"} {
		if got := next.ContainerDevices(pod.UID("uid-"+name), "c"); len(got) != 1 {
			t.Errorf("after the start pod %s has %v, want its device", name, got)
		}
	}
	third, fourth := newFake("a", "b", "c"), refusing("GetDevicePluginOptions")
	next.serve(third, "third.sock")
	next.registerAs(gpu, "third.sock")
	next.serve(fourth, "fourth.sock")
	if err := next.register(&pluginapi.RegisterRequest{Version: pluginapi.Version, ResourceName: gpu, Endpoint: "fourth.sock"}); err == nil || !strings.Contains(err.Error(), "failed to get device plugin options") {
		t.Errorf("one that is ill registers: got %v", err)
	}
	next.eventually("the ill one has no connection", func() bool { return fourth.connected() == 0 })
	next.eventually("the third one's devices are there", func() bool { _, usable := next.amount(gpu); return usable == 3 })
	for _, name := range []string{"p1", "p2", "p3"} {
		if h := next.Health(pod.UID("uid-" + name))["c"]; len(h) != 1 || h[0].Resources[0].Health != v1.ResourceHealthStatusHealthy {
			t.Errorf("pod %s sees %v", name, h)
		}
	}
}

// A plugin refuses a call because it is about to end: the other one is asked at once, whether
// podd learns of the end before or after the answer.
func TestAnAllocationGoesToThePluginThatIsLeft(t *testing.T) {
	for _, test := range []struct {
		name        string
		end, answer time.Duration // after the call
	}{
		{"ends before it answers", time.Second, 2 * time.Second},
		{"ends after it answered", 2 * time.Second, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				former, next := newFake("a", "b"), newFake("a", "b")
				r := plugged(t, root, former)
				defer r.stop()
				r.plugAt(gpu, "next", next)
				synctest.Wait()
				next.respond = func(context.Context, []string) (*pluginapi.ContainerAllocateResponse, error) {
					time.AfterFunc(test.end, func() { close(next.lists) })
					time.Sleep(test.answer)
					return nil, errors.New("it is about to end")
				}
				p := aPod("p", gpu, "1")
				_, _ = r.Admit(p)
				time.Sleep(2 * time.Second) // both have happened; a retry after the failure is not due
				synctest.Wait()
				_, _ = r.Admit(p)
				synctest.Wait()
				if waits, err := r.Admit(p); waits != "" || err != nil || former.count("Allocate") != 1 {
					t.Errorf("got %q, %v after %d calls of the one that is left", waits, err, former.count("Allocate"))
				}
			})
		})
	}
}

// The socket of a plugin of plugins_registry is removed: the others of its resource stay.
func TestTheEndOfASocketEndsItsPluginAlone(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		former, next := newFake("a"), newFake("a", "b")
		r := plugged(t, root, former)
		defer r.stop()
		r.plugAt(gpu, "next", next)
		synctest.Wait()
		r.Deregister(gpu, "next")
		synctest.Wait()
		if r.closed[next].Load() != 1 || r.closed[former].Load() != 0 {
			t.Errorf("closed %d and %d times, want the removed one alone", r.closed[next].Load(), r.closed[former].Load())
		}
		if _, usable := r.amount(gpu); usable != 1 {
			t.Errorf("the node has %d devices, want the former one's", usable)
		}
	})
}
