package devices

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/pod"
)

const nic = "example.com/nic"

// plugged is a Manager in a bubble with a plugin that has listed its devices.
func plugged(t *testing.T, root string, f *fake) *rig {
	t.Helper()
	r := looped(t, root)
	r.plug(gpu, f)
	synctest.Wait()
	return r
}

// What a plugin may do to a pod that is to be admitted, and what the pod is told.
func TestWhyAPodIsNotAdmitted(t *testing.T) {
	type response = pluginapi.ContainerAllocateResponse
	for name, tc := range map[string]struct {
		change func(f *fake)
		want   string
	}{
		"an error": {func(f *fake) {
			f.respond = func(context.Context, []string) (*response, error) { return nil, errors.New("not today") }
		}, "not today"},
		"a long error": {func(f *fake) {
			f.respond = func(context.Context, []string) (*response, error) {
				return nil, errors.New(strings.Repeat("x", 100000))
			}
		}, strings.Repeat("x", 1000) + "…"},
		"nothing for its container": {func(f *fake) {
			f.respond = func(context.Context, []string) (*response, error) { return nil, nil }
		}, "no containers return in allocation response of example.com/gpu"},
		"what podd does not pass on": {func(f *fake) {
			f.respond = func(context.Context, []string) (*response, error) {
				return &response{Envs: map[string]string{"A=B": ""}}, nil
			}
		}, `the device plugin of example.com/gpu: "A=B" is no environment variable`},
		"no preference": {func(f *fake) {
			f.options.GetPreferredAllocationAvailable = true
			f.before = refusing("GetPreferredAllocation").before
		}, "device plugin GetPreferredAllocation rpc failed with err: no GetPreferredAllocation today"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				f := newFake("a", "b")
				tc.change(f)
				r := plugged(t, root, f)
				defer r.stop()
				p := aPod("p", gpu, "1")
				_, _ = r.Admit(p)
				synctest.Wait()
				if waits, err := r.Admit(p); waits != "" || err == nil || err.Error() != tc.want {
					t.Errorf("got %q, %v; want %q", waits, err, tc.want)
				}
				if !strings.Contains(r.logged.String(), "cannot allocate devices") {
					t.Errorf("the log has %s", r.logged)
				}
			})
		})
	}
}

// Its plugin ends while another one allocates what comes first.
func TestAPluginThatEndsBeforeItsTurnIsMissed(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		first, second := newFake("a"), newFake("n")
		first.respond = func(context.Context, []string) (*pluginapi.ContainerAllocateResponse, error) {
			time.Sleep(time.Second)
			return &pluginapi.ContainerAllocateResponse{}, nil
		}
		r := plugged(t, root, first)
		defer r.stop()
		r.plug(nic, second)
		synctest.Wait()
		p := aPod("p", gpu, "1", nic, "1")
		_, _ = r.Admit(p)
		synctest.Wait()
		close(second.lists)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if waits, err := r.Admit(p); waits != "" || err == nil || err.Error() != "endpoint example.com/nic has been stopped" {
			t.Errorf("got %q, %v", waits, err)
		}
		// What the first plugin has granted is free again.
		_, err := r.Admit(aPod("q", gpu, "1"))
		if err != nil {
			t.Errorf("another pod that wants the first one's device: got %v", err)
		}
	})
}

// A pod is tried again after 10 s, 20 s, and so on up to five minutes.
func TestHowLongAPodWaitsForAPluginThatRefuses(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := unsettled(t, root).loops() // as podd starts: that pods wait for plugins at first changes nothing
		defer r.stop()
		f := newFake("a")
		var tries []time.Duration
		began := time.Now()
		f.respond = func(context.Context, []string) (*pluginapi.ContainerAllocateResponse, error) {
			tries = append(tries, time.Since(began))
			return nil, errors.New("not today")
		}
		r.plug(gpu, f)
		synctest.Wait()
		p := aPod("p", gpu, "1")
		for range 1300 {
			_, _ = r.Admit(p)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		var want []time.Duration
		for _, s := range []time.Duration{0, 10, 30, 70, 150, 310, 610, 910, 1210} {
			want = append(want, s*time.Second)
		}
		if !slices.Equal(tries, want) {
			t.Errorf("tried after %v, want %v", tries, want)
		}
	})
}

func TestAPodGetsItsDevicesAtTheSecondAttempt(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		refuse := true
		f.respond = func(_ context.Context, ids []string) (*pluginapi.ContainerAllocateResponse, error) {
			if refuse {
				return nil, errors.New("not today")
			}
			return &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": join(ids)}}, nil
		}
		r := plugged(t, root, f)
		defer r.stop()
		p := aPod("p", gpu, "1")
		_, _ = r.Admit(p)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		refuse = false
		before := r.admits()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if r.admits() == before {
			t.Error("nobody was told to try again")
		}
		_, _ = r.Admit(p)
		before = r.admits()
		synctest.Wait()
		if r.admits() == before {
			t.Error("nobody was told that the pod has its device")
		}
		if waits, err := r.Admit(p); waits != "" || err != nil {
			t.Errorf("got %q, %v", waits, err)
		}
		if d, err := r.Container(t.Context(), p, &p.Spec.Containers[0]); err != nil || !d.Ready || d.Env["DEVICES"] != "a " {
			t.Errorf("its container: got %+v, %v", d, err)
		}
	})
}

// A plugin that starts again may have been repaired, also if it has the same devices.
func TestWhatAPluginRefusedIsTriedAgainWhenItRegistersAgain(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		f.respond = func(context.Context, []string) (*pluginapi.ContainerAllocateResponse, error) {
			return nil, errors.New("not today")
		}
		r := plugged(t, root, f)
		defer r.stop()
		p := aPod("p", gpu, "1")
		_, _ = r.Admit(p)
		synctest.Wait()
		before := r.admits()
		r.plug(gpu, newFake("a"))
		synctest.Wait()
		if r.admits() == before {
			t.Error("nobody was told to try again")
		}
		if waits, err := r.Admit(p); waits == "" || err != nil {
			t.Errorf("got %q, %v: want that it is tried again at once", waits, err)
		}
	})
}

// That a pod is removed which has no device is no reason to try others again.
func TestAPodWithoutDevicesIsReleasedUnnoticed(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a", "b")
		var tries atomic.Int32
		f.respond = func(context.Context, []string) (*pluginapi.ContainerAllocateResponse, error) {
			tries.Add(1)
			return nil, errors.New("not today")
		}
		r := plugged(t, root, f)
		defer r.stop()
		p, q := aPod("p", gpu, "1"), aPod("q", gpu, "1")
		_, _ = r.Admit(p)
		_, _ = r.Admit(q)
		synctest.Wait()
		before := r.admits()
		r.Release(p.UID)
		synctest.Wait()
		if r.admits() != before {
			t.Error("admission was told")
		}
		if _, err := r.Admit(q); err == nil || tries.Load() != 2 {
			t.Errorf("the other one: got %v after %d tries, want that it waits still", err, tries.Load())
		}
	})
}

// hanging is a plugin whose Allocate takes until its deadline, or is cancelled.
func hanging(ended *[]error, ids ...string) *fake {
	f := newFake(ids...)
	f.respond = func(ctx context.Context, _ []string) (*pluginapi.ContainerAllocateResponse, error) {
		<-ctx.Done()
		*ended = append(*ended, ctx.Err())
		return nil, ctx.Err()
	}
	return f
}

// Nothing is allocated for a pod that is gone, and nobody is woken for it.
func TestTheCallForAPodThatIsReleasedEnds(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var ended []error
		r := plugged(t, root, hanging(&ended, "a"))
		defer r.stop()
		p, q := aPod("p", gpu, "1"), aPod("q", gpu, "1")
		_, _ = r.Container(t.Context(), p, &p.Spec.Containers[0])
		synctest.Wait()
		if _, err := r.Admit(q); err == nil {
			t.Error("its device is not reserved")
		}
		before := r.admits()
		r.Release(p.UID)
		synctest.Wait()
		if r.admits() == before {
			t.Error("nobody was told that the device is free")
		}
		if len(ended) != 1 || !errors.Is(ended[0], context.Canceled) {
			t.Errorf("got %v: want that the call was cancelled", ended)
		}
		if r.of(p.UID) != 0 || strings.Contains(r.logged.String(), "cannot allocate devices") {
			t.Errorf("the pod was woken %d times, and the log has %s", r.of(p.UID), r.logged)
		}
		if waits, err := r.Admit(q); waits == "" || err != nil {
			t.Errorf("another pod: got %q, %v", waits, err)
		}
		synctest.Wait()
	})
}

// Each call of a plugin has its deadline; they are those of upstream where it has some.
func TestHowLongPluginsAreWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		call string
		want time.Duration
		err  string
	}{
		"the preference":   {"GetPreferredAllocation", 30 * time.Second, "device plugin GetPreferredAllocation rpc failed with err: context deadline exceeded"},
		"the allocation":   {"Allocate", 2 * time.Minute, "context deadline exceeded"},
		"before its start": {"PreStartContainer", 30 * time.Second, "device plugin PreStartContainer rpc failed with err: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				f := newFake("a", "b")
				f.options.GetPreferredAllocationAvailable, f.options.PreStartRequired = true, true
				var took time.Duration
				hang := func(ctx context.Context, call string) error {
					if call != tc.call {
						return nil
					}
					began := time.Now()
					<-ctx.Done()
					took = time.Since(began)
					return ctx.Err()
				}
				f.before = hang
				f.respond = func(ctx context.Context, _ []string) (*pluginapi.ContainerAllocateResponse, error) {
					return &pluginapi.ContainerAllocateResponse{}, hang(ctx, "Allocate")
				}
				r := plugged(t, root, f)
				defer r.stop()
				p := aPod("p", gpu, "1")
				var err error
				for range 10 { // as often as the agent asks
					if _, err = r.Container(t.Context(), p, &p.Spec.Containers[0]); err != nil {
						break
					}
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				if err == nil || err.Error() != tc.err || took != tc.want {
					t.Errorf("got %v after %s, want %q after %s", err, took, tc.err, tc.want)
				}
			})
		})
	}
}

// The deadline of the first call goes over the socket: a plugin that hangs may not hold up
// its own registration for long.
func TestAPluginIsAskedForItsOptionsOnlySoLong(t *testing.T) {
	r := served(t, "")
	f := newFake("a")
	var left time.Duration
	f.before = func(ctx context.Context, call string) error {
		if call == "GetDevicePluginOptions" {
			at, _ := ctx.Deadline()
			left = time.Until(at)
		}
		return nil
	}
	r.serve(f, "gpu.sock")
	r.registerAs(gpu, "gpu.sock")
	if left <= 0 || left > 10*time.Second {
		t.Errorf("it has %s, want 10 s at most", left)
	}
}

func TestWhatAPluginIsAskedToPrefer(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("d", "c", "b", "a", "e")
		f.options.GetPreferredAllocationAvailable = true
		var asked []*pluginapi.ContainerPreferredAllocationRequest
		f.prefer = func(q *pluginapi.ContainerPreferredAllocationRequest) []string {
			asked = append(asked, q)
			return []string{"e", "d"}
		}
		r := plugged(t, root, f)
		defer r.stop()
		other, p := aPod("other", gpu, "1"), aPod("p", gpu, "1")
		p.Spec.InitContainers = []v1.Container{withLimits("first", gpu, "1")}
		for _, one := range []*v1.Pod{other, p} {
			_, _ = r.Admit(one)
			synctest.Wait()
		}
		// The second container of p has what the first one had: there is nothing to choose.
		if len(asked) != 2 {
			t.Fatalf("it was asked %d times, want twice", len(asked))
		}
		for i, want := range [][]string{{"a", "b", "c", "d", "e"}, {"a", "b", "c", "d"}} {
			if q := asked[i]; !slices.Equal(q.AvailableDeviceIDs, want) || len(q.MustIncludeDeviceIDs) != 0 || q.AllocationSize != 1 {
				t.Errorf("it was asked for %v, want one of %q", q, want)
			}
		}
		if h := r.Health(p.UID); h["first"][0].Resources[0].ResourceID != "d" || h["c"][0].Resources[0].ResourceID != "d" {
			t.Errorf("got %v, want d for both containers", h)
		}
	})
}

func TestAPluginWithoutAPreferenceGetsTheFirstOnes(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("e", "d", "c", "b", "a", "x", "y", "z")
		f.options.GetPreferredAllocationAvailable = true
		r := plugged(t, root, f)
		defer r.stop()
		p := aPod("p", gpu, "2")
		_, _ = r.Admit(p)
		synctest.Wait()
		if d, err := r.Container(t.Context(), p, &p.Spec.Containers[0]); err != nil || d.Env["DEVICES"] != "a b " {
			t.Errorf("got %+v, %v, want a and b", d, err)
		}
	})
}

// The call is optional: most plugins do not implement it, and return an error.
func TestAPluginWithoutPreferencesIsNotAskedForThem(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a", "b")
		f.before = refusing("GetPreferredAllocation").before
		r := plugged(t, root, f)
		defer r.stop()
		p := aPod("p", gpu, "1")
		_, _ = r.Admit(p)
		synctest.Wait()
		if waits, err := r.Admit(p); waits != "" || err != nil {
			t.Errorf("got %q, %v: want that it is admitted", waits, err)
		}
	})
}

// What the removed pods of an earlier podd had is free, and whoever waits is told.
func TestWhatIsNotRetainedIsFree(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := plugged(t, root, newFake("a", "b"))
		p, gone := aPod("p", gpu, "1"), aPod("gone", gpu, "1")
		_, _ = r.Admit(p)
		_, _ = r.Admit(gone)
		synctest.Wait()
		r.stop()

		r = plugged(t, root, newFake("a", "b"))
		late := aPod("late", gpu, "1")
		if _, err := r.Admit(late); err == nil {
			t.Error("a pod has more than there is")
		}
		before := r.admits()
		r.Retain(map[pod.UID]bool{p.UID: true})
		if r.admits() == before {
			t.Error("nobody was told")
		}
		if waits, err := r.Admit(late); waits == "" || err != nil {
			t.Errorf("got %q, %v", waits, err)
		}
		synctest.Wait()
		r.Release(late.UID)
		synctest.Wait()
		r.stop()

		// The checkpoint says so, too.
		last := newRig(t, root)
		if last.Health(p.UID) == nil || last.Health(gone.UID) != nil || last.Health(late.UID) != nil {
			t.Errorf("the next podd has %v, want pod p alone", last.Manager.pods)
		}
	})
}

// The Node's status is written when its resources change, and not with each pod.
func TestTheNodeIsToldOfItsResources(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		defer r.stop()
		f := newFake("a")
		p := aPod("p", gpu, "1")
		for _, step := range []struct {
			name string
			do   func()
			want int
		}{
			{"a list", func() { r.plug(gpu, f) }, 1},
			{"a pod", func() { _, _ = r.Admit(p) }, 1},
			{"the same list", func() { f.lists <- healthy("a") }, 1},
			{"another list", func() { f.lists <- healthy("a", "b") }, 2},
			{"another place", func() {
				f.lists <- append(healthy("a"), &pluginapi.Device{ID: "b", Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: 1}}}})
			}, 3},
			{"its end", func() { close(f.lists) }, 4},
			{"its grace period", func() { time.Sleep(6 * time.Minute) }, 5},
			{"the pod's end", func() { r.Release(p.UID) }, 5},
		} {
			step.do()
			synctest.Wait()
			if got := r.nodes(); got != step.want {
				t.Errorf("after %s: told %d times, want %d", step.name, got, step.want)
			}
		}
	})
}
