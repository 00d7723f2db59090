package devices

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/pod"
)

// A plugin registers on the real socket; what it says reaches containers, and its list the
// Node and the pods.
func TestADeviceOnItsWayIntoAContainer(t *testing.T) {
	r := served(t, "")
	f := newFake("a", "b")
	f.options.PreStartRequired = true
	f.respond = func(_ context.Context, ids []string) (*pluginapi.ContainerAllocateResponse, error) {
		return &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"GPU": ids[0]}, Annotations: map[string]string{"example.com/which": ids[0]},
			Mounts:     []*pluginapi.Mount{{HostPath: "/opt/gpu", ContainerPath: "/gpu", ReadOnly: true}},
			Devices:    []*pluginapi.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/gpu0", Permissions: "rw"}},
			CdiDevices: []*pluginapi.CDIDevice{{Name: "example.com/gpu=" + ids[0]}},
		}, nil
	}
	r.serve(f, "gpu.sock")
	r.registerAs(gpu, "gpu.sock")
	r.eventually("both are listed", func() bool { all, usable := r.amount(gpu); return all == 2 && usable == 2 })
	p := aPod("web", gpu, "1")
	told := r.admits()
	if waits, err := r.Admit(p); err != nil || waits != "waiting for the device plugin of example.com/gpu to allocate" {
		t.Fatalf("got %q, %v: want that it waits", waits, err)
	}
	r.admitted(p)
	r.eventually("somebody is told to admit it", func() bool { return r.admits() > told })
	got, err := r.Container(t.Context(), p, &p.Spec.Containers[0])
	want := pod.ContainerDevices{
		Ready: true, Env: map[string]string{"GPU": "a"}, Annotations: map[string]string{"example.com/which": "a"},
		Mounts:  []pod.Mount{{HostPath: "/opt/gpu", ContainerPath: "/gpu", ReadOnly: true}},
		Devices: []pod.Device{{HostPath: "/dev/null", ContainerPath: "/dev/gpu0", Permissions: "rw"}},
		CDI:     []string{"example.com/gpu=a"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if f.count("PreStartContainer") != 1 || f.count("Allocate") != 1 {
		t.Errorf("the plugin got %v", f.calls)
	}
	if h := r.Health(p.UID)["c"]; len(h) != 1 || h[0].Name != gpu || len(h[0].Resources) != 1 || h[0].Resources[0] != (v1.ResourceHealth{ResourceID: "a", Health: v1.ResourceHealthStatusHealthy}) {
		t.Errorf("its health is %v", h)
	}
	// Another list: one is sick now.
	before := r.of(p.UID)
	f.lists <- append(healthy("b"), &pluginapi.Device{ID: "a", Health: pluginapi.Unhealthy})
	r.eventually("the pod is told", func() bool { return r.of(p.UID) > before })
	if h := r.Health(p.UID)["c"][0].Resources[0].Health; h != v1.ResourceHealthStatusUnhealthy {
		t.Errorf("its health is %v", h)
	}
	if all, usable := r.amount(gpu); all != 2 || usable != 1 {
		t.Errorf("got %d, %d: want 2 and 1", all, usable)
	}
	// It keeps what it has; another pod gets what is left, a third nothing.
	if waits, err := r.Admit(p); waits != "" || err != nil {
		t.Errorf("got %q, %v", waits, err)
	}
	second, third := aPod("second", gpu, "1"), aPod("third", gpu, "1")
	r.admitted(second)
	if _, err := r.Admit(third); err == nil || err.Error() != "requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0" {
		t.Errorf("got %v", err)
	}
	admits := r.admits()
	r.Release(second.UID)
	if r.admits() == admits {
		t.Error("nobody was told that devices are free")
	}
	r.admitted(third)
	r.Release("unknown")
}

// What a pod has is known to the next podd, which has the plugin register again, and shows
// it as unknown until then.
func TestARestartKeepsWhatPodsHave(t *testing.T) {
	r := served(t, "")
	f := newFake("a", "b")
	r.serve(f, "gpu.sock")
	r.registerAs(gpu, "gpu.sock")
	r.eventually("both are listed", func() bool { _, usable := r.amount(gpu); return usable == 2 })
	p, gone := aPod("web", gpu, "1"), aPod("gone", gpu, "1")
	r.admitted(p)
	r.admitted(gone)
	r.stop()

	next := newRig(t, r.root)
	next.knownPluginsUntil = time.Now().Add(time.Hour)
	next.run(func(ctx context.Context) { _ = next.Run(ctx) })
	next.eventually("the old sockets are removed", func() bool { _, err := os.Stat(filepath.Join(next.dir, "gpu.sock")); return err != nil })
	if all, usable := next.amount(gpu); all != 0 || usable != 0 {
		t.Errorf("before its plugin has registered the resource has %d, %d", all, usable)
	}
	if h := next.Health(p.UID)["c"][0].Resources[0]; h.ResourceID != "a" || h.Health != v1.ResourceHealthStatusUnknown {
		t.Errorf("its health is %v", h)
	}
	// A pod that is new waits, as does a container of the old one.
	if waits, err := next.Admit(aPod("new", gpu, "1")); err != nil || !strings.Contains(waits, "to register") {
		t.Errorf("a new pod: got %q, %v", waits, err)
	}
	if d, err := next.Container(t.Context(), p, &p.Spec.Containers[0]); err != nil || d.Ready || !strings.HasPrefix(d.Message, "no healthy devices present") {
		t.Errorf("a container of the old pod: got %+v, %v", d, err)
	}
	next.Retain(map[pod.UID]bool{p.UID: true})
	if next.Health(gone.UID) != nil {
		t.Error("a pod that is gone still has its device")
	}
	before := next.of(p.UID)
	next.serve(newFake("a", "b"), "gpu.sock")
	next.registerAs(gpu, "gpu.sock")
	next.eventually("the pod is woken", func() bool { return next.of(p.UID) > before })
	d, err := next.Container(t.Context(), p, &p.Spec.Containers[0])
	if err != nil || !d.Ready || d.Env["DEVICES"] != "a " {
		t.Errorf("got %+v, %v: want what the plugin had said to the first podd", d, err)
	}
	next.admitted(aPod("new", gpu, "1"))
}

func TestWithoutItsPluginAResourceGoesAfterAWhile(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		defer r.stop()
		f := newFake("a")
		r.plug(gpu, f)
		synctest.Wait()
		p := aPod("web", gpu, "1")
		_, _ = r.Admit(p)
		synctest.Wait()
		close(f.lists) // it ends
		synctest.Wait()
		if all, usable := r.amount(gpu); all != 1 || usable != 0 {
			t.Errorf("at once: got %d, %d", all, usable)
		}
		if _, err := r.Admit(aPod("late", gpu, "1")); err == nil || !strings.HasPrefix(err.Error(), "no healthy devices present") {
			t.Errorf("another pod: got %v", err)
		}
		time.Sleep(5*time.Minute - time.Second)
		synctest.Wait()
		if all, _ := r.amount(gpu); all != 1 {
			t.Errorf("before the grace period has passed: got %d", all)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if all, usable := r.amount(gpu); all != 0 || usable != 0 {
			t.Errorf("after the grace period: got %d, %d: want a resource of which there is none", all, usable)
		}
		// To a cluster's scheduler it may be a resource that no node counts; the pod that has
		// one keeps it.
		if waits, err := r.Admit(aPod("late", gpu, "1")); waits != "" || err != nil {
			// It is allocated to a pod, and therefore counted for that pod alone.
			t.Errorf("got %q, %v", waits, err)
		}
		if d, err := r.Container(t.Context(), p, &p.Spec.Containers[0]); err != nil || !d.Ready || d.Env["DEVICES"] != "a " {
			t.Errorf("a restart of its container: got %+v, %v", d, err)
		}
		r.plug(gpu, newFake("a", "b"))
		synctest.Wait()
		if all, usable := r.amount(gpu); all != 2 || usable != 2 {
			t.Errorf("registered again: got %d, %d", all, usable)
		}
	})
}

func TestAfterTheStartPodsWaitForPluginsOnlySoLong(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, root)
		r.knownPluginsUntil, r.newPluginsUntil = time.Now().Add(30*time.Second), time.Now().Add(10*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.loop.Run(ctx, r.runDueWork)
		static, clusters := fromFile(aPod("static", gpu, "1")), aPod("web", gpu, "1")
		if waits, err := r.Admit(static); err != nil || waits != "waiting for the device plugin of example.com/gpu to register" {
			t.Errorf("at first: got %q, %v", waits, err)
		}
		if waits, err := r.Admit(clusters); waits != "" || err != nil {
			t.Errorf("a resource that may be the scheduler's: got %q, %v", waits, err)
		}
		before := r.admits()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if r.admits() == before {
			t.Error("nobody was told to ask again")
		}
		if waits, err := r.Admit(static); waits != "" || err != nil {
			t.Errorf("later, as with a kubelet: got %q, %v", waits, err)
		}
		before = r.admits()
		r.plug(gpu, newFake("a"))
		synctest.Wait()
		if r.admits() == before {
			t.Error("nobody was told that the plugin is there")
		}
		if waits, err := r.Admit(static); waits == "" || err != nil {
			t.Errorf("with its plugin: got %q, %v", waits, err)
		}
	})
}

// A plugin that never answers delays its own pods, until the deadline, and nobody else.
func TestAPluginThatNeverAnswersDelaysItsOwnPods(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		defer r.stop()
		hung, well := newFake("a"), newFake("a")
		hung.respond = func(ctx context.Context, _ []string) (*pluginapi.ContainerAllocateResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		r.plug("example.com/hung", hung)
		r.plug("example.com/well", well)
		synctest.Wait()
		p, other := aPod("p", "example.com/hung", "1"), aPod("other", "example.com/well", "1")
		_, _ = r.Admit(p)
		_, _ = r.Admit(other)
		synctest.Wait()
		if waits, err := r.Admit(other); waits != "" || err != nil {
			t.Errorf("the other pod: got %q, %v", waits, err)
		}
		// Its device is reserved meanwhile.
		if _, err := r.Admit(aPod("q", "example.com/hung", "1")); err == nil || !strings.Contains(err.Error(), "Available: 0") {
			t.Errorf("got %v", err)
		}
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if _, err := r.Admit(p); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
			t.Errorf("after the deadline: got %v", err)
		}
		// A pod that is removed meanwhile gives back what was reserved, and the call ends.
		time.Sleep(time.Hour)
		synctest.Wait()
		if waits, _ := r.Admit(p); waits == "" {
			t.Error("it is not tried again")
		}
		synctest.Wait()
		r.Release(p.UID)
		synctest.Wait()
		if waits, err := r.Admit(aPod("q", "example.com/hung", "1")); waits == "" || err != nil {
			t.Errorf("its device is not free: %q, %v", waits, err)
		}
		synctest.Wait()
	})
}

// Two pods that a plugin refuses are tried again when time has passed, ever more of it, or
// the plugin's devices have changed: not because of each other.
func TestWhatAPluginRefusesIsTriedAgainNowAndThen(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		defer r.stop()
		f := newFake("a", "b", "c")
		var tries atomic.Int32
		f.respond = func(context.Context, []string) (*pluginapi.ContainerAllocateResponse, error) {
			tries.Add(1)
			return nil, errors.New("not today")
		}
		r.plug(gpu, f)
		synctest.Wait()
		pods := []*v1.Pod{aPod("p", gpu, "1"), aPod("q", gpu, "1")}
		for range 3600 { // an hour; whoever is told asks at once, and others ask, too
			for last := -1; last != r.admits(); {
				last = r.admits()
				for _, p := range pods {
					_, _ = r.Admit(p)
				}
				synctest.Wait()
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		// 10 s, doubling to 5 minutes: some 16 times an hour, each.
		if n := tries.Load(); n < 20 || n > 40 {
			t.Errorf("%d tries in an hour, want some 32", n)
		}
		if _, err := r.Admit(pods[0]); err == nil || !strings.Contains(err.Error(), "not today") {
			t.Errorf("got %v", err)
		}
		before := tries.Load()
		f.lists <- healthy("a", "b", "c", "d")
		synctest.Wait()
		if waits, err := r.Admit(pods[0]); waits == "" || err != nil {
			t.Errorf("with other devices: got %q, %v", waits, err)
		}
		synctest.Wait()
		if tries.Load() != before+1 {
			t.Errorf("%d tries, want %d", tries.Load(), before+1)
		}
	})
}

func TestAPluginMayPreferDevices(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		defer r.stop()
		f := newFake("a", "b", "c", "d")
		f.options.GetPreferredAllocationAvailable = true
		var asked *pluginapi.ContainerPreferredAllocationRequest
		f.prefer = func(q *pluginapi.ContainerPreferredAllocationRequest) []string {
			asked = q
			return []string{"d", "no such"}
		}
		r.plug(gpu, f)
		synctest.Wait()
		p := aPod("p", gpu, "2")
		p.Spec.InitContainers = []v1.Container{withLimits("first", gpu, "1")}
		_, _ = r.Admit(p)
		synctest.Wait()
		if waits, err := r.Admit(p); waits != "" || err != nil {
			t.Fatalf("got %q, %v", waits, err)
		}
		h := r.Health(p.UID)
		if got := h["first"][0].Resources[0].ResourceID; got != "d" {
			t.Errorf("the init container has %s, want d", got)
		}
		if got := h["c"][0].Resources; len(got) != 2 || got[1].ResourceID != "d" {
			t.Errorf("the container has %v, want what the init container had among them", got)
		}
		if !reflect.DeepEqual(asked.MustIncludeDeviceIDs, []string{"d"}) || asked.AllocationSize != 2 {
			t.Errorf("it was asked last for %v", asked)
		}
	})
}

func TestAPluginThatRegistersAgainTakesTheFirstOnesPlace(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		defer r.stop()
		r.plug(gpu, newFake("a"))
		synctest.Wait()
		r.plug(gpu, newFake("b", "c"))
		synctest.Wait()
		if all, usable := r.amount(gpu); all != 2 || usable != 2 {
			t.Errorf("got %d, %d: want the second one's", all, usable)
		}
		r.Deregister(gpu, "another")
		synctest.Wait()
		if _, usable := r.amount(gpu); usable != 2 {
			t.Errorf("another endpoint is gone: got %d", usable)
		}
		r.Deregister(gpu, gpu)
		r.Deregister(gpu, gpu)
		r.plug(gpu, newFake("d")) // before the end of the former one was noticed
		synctest.Wait()
		if all, usable := r.amount(gpu); all != 1 || usable != 1 {
			t.Errorf("a third one: got %d, %d", all, usable)
		}
		r.Deregister(gpu, gpu)
		synctest.Wait()
		if all, usable := r.amount(gpu); all != 1 || usable != 0 {
			t.Errorf("its own is gone: got %d, %d", all, usable)
		}
	})
}

func TestManyDevices(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		defer r.stop()
		var ids []string
		for i := range 10000 {
			ids = append(ids, "device-"+strconv.Itoa(i))
		}
		f := newFake(ids...)
		r.plug(gpu, f)
		synctest.Wait()
		if all, usable := r.amount(gpu); all != 10000 || usable != 10000 {
			t.Errorf("got %d, %d", all, usable)
		}
		p := aPod("p", gpu, "9999")
		_, _ = r.Admit(p)
		synctest.Wait()
		if waits, err := r.Admit(p); waits != "" || err != nil {
			t.Errorf("got %q, %v", waits, err)
		}
		f.lists <- append(healthy("twice"), &pluginapi.Device{ID: "twice", Health: "odd"})
		synctest.Wait()
		if all, usable := r.amount(gpu); all != 1 || usable != 0 {
			t.Errorf("one that is listed twice: got %d, %d", all, usable)
		}
		f.lists <- healthy("")
		synctest.Wait()
		if len(r.resources[gpu].plugins) != 0 {
			t.Error("a plugin whose device has no name is still there")
		}
	})
}

// What was a resource of the node before a restart is one after it: nobody is started without.
func TestAResourceOfBeforeTheStartIsAwaitedAndThenMissed(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		r.plug(gpu, newFake("a"))
		synctest.Wait()
		r.stop()
		next := newRig(t, root)
		next.knownPluginsUntil = time.Now().Add(30 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go next.loop.Run(ctx, next.runDueWork)
		pods := []*v1.Pod{fromFile(aPod("static", gpu, "1")), aPod("web", gpu, "1")}
		for _, p := range pods {
			if waits, err := next.Admit(p); err != nil || waits != "waiting for the device plugin of example.com/gpu to register" {
				t.Errorf("%s at first: got %q, %v", p.Name, waits, err)
			}
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		for _, p := range pods {
			if waits, err := next.Admit(p); waits != "" || err == nil || err.Error() != "no healthy devices present; cannot allocate unhealthy devices example.com/gpu" {
				t.Errorf("%s later: got %q, %v", p.Name, waits, err)
			}
		}
		next.plug(gpu, newFake("a"))
		synctest.Wait()
		if waits, err := next.Admit(pods[0]); waits == "" || err != nil {
			t.Errorf("with its plugin: got %q, %v", waits, err)
		}
	})
}

// Upstream's e2e test "when ListAndWatch fails immediately" wants a Node with none of them.
func TestAPluginThatListsNothingHasAResourceOfWhichThereIsNone(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		defer r.stop()
		f := newFake()
		<-f.lists
		close(f.lists)
		if all, _ := r.amount(gpu); all != -1 {
			t.Errorf("before: got %d", all)
		}
		r.plug(gpu, f)
		synctest.Wait()
		if all, usable := r.amount(gpu); all != 0 || usable != 0 {
			t.Errorf("got %d, %d", all, usable)
		}
		if all, _ := newRig(t, root).amount(gpu); all != 0 {
			t.Errorf("the next podd has %d of it, want a resource of which there is none", all)
		}
	})
}
