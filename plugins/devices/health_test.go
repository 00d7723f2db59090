package devices

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// at is a list with devices and the machine's nodes that they are close to: "a", "b@0", "c@0,1".
func at(devices ...string) (all []*pluginapi.Device) {
	for _, text := range devices {
		id, nodes, _ := strings.Cut(text, "@")
		d := healthy(id)[0]
		for n := range strings.SplitSeq(nodes, ",") {
			if n != "" {
				if d.Topology == nil {
					d.Topology = &pluginapi.TopologyInfo{}
				}
				d.Topology.Nodes = append(d.Topology.Nodes, &pluginapi.NUMANode{ID: int64(n[0] - '0')})
			}
		}
		all = append(all, d)
	}
	return all
}

// told writes what the pod resources API gets, in the form of at.
func told(all []*podresources.ContainerDevices) (text []string) {
	for _, d := range all {
		one := d.ResourceName + " " + strings.Join(d.DeviceIds, "+")
		for i, n := range d.GetTopology().GetNodes() {
			one += map[bool]string{true: "@", false: ","}[i == 0] + fmt.Sprint(n.ID)
		}
		text = append(text, one)
	}
	return text
}

// Each device is an entry, as in upstream's API: its clients count entries.
func TestTheDevicesOfThePodResourcesAPI(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		<-f.lists
		r := plugged(t, root, f)
		f.lists <- append(at("d", "c@0,1", "b@1", "a"), &pluginapi.Device{ID: "e", Health: pluginapi.Unhealthy})
		r.plug(nic, newFake("n"))
		synctest.Wait()
		p := aPod("p", gpu, "3", nic, "1")
		_, _ = r.Admit(p)
		synctest.Wait()
		if got, want := told(r.AllocatableDevices()), []string{gpu + " a", gpu + " b@1", gpu + " c@0,1", gpu + " d", nic + " n"}; !reflect.DeepEqual(got, want) {
			t.Errorf("allocatable: got %q, want %q", got, want)
		}
		want := []string{gpu + " a", gpu + " b@1", gpu + " c@0,1", nic + " n"}
		if got := told(r.ContainerDevices(p.UID, "c")); !reflect.DeepEqual(got, want) {
			t.Errorf("the container: got %q, want %q", got, want)
		}
		if got := r.ContainerDevices(p.UID, "another"); got != nil {
			t.Errorf("a container without devices: got %v", got)
		}
		if got := r.ContainerDevices("unknown", "c"); got != nil {
			t.Errorf("a pod without devices: got %v", got)
		}
		// They are known without the plugin, and after a restart.
		close(f.lists)
		synctest.Wait()
		if got := told(r.ContainerDevices(p.UID, "c")); !reflect.DeepEqual(got, want) {
			t.Errorf("without its plugin: got %q, want %q", got, want)
		}
		if got := told(r.AllocatableDevices()); !reflect.DeepEqual(got, []string{nic + " n"}) {
			t.Errorf("allocatable without the plugin: got %q", got)
		}
		r.stop()
		if got := told(newRig(t, root).ContainerDevices(p.UID, "c")); !reflect.DeepEqual(got, want) {
			t.Errorf("after a restart: got %q, want %q", got, want)
		}
	})
}

// A node has some NUMA nodes: a plugin that names thousands for a device costs no memory.
func TestTheNodesOfADeviceAreBounded(t *testing.T) {
	d := healthy("a")[0]
	d.Topology = &pluginapi.TopologyInfo{}
	for i := range 1000 {
		d.Topology.Nodes = append(d.Topology.Nodes, &pluginapi.NUMANode{ID: int64(i)})
	}
	all, err := devicesOf([]*pluginapi.Device{d})
	if err != nil || len(all["a"].numaNodes) != maxNUMANodes {
		t.Errorf("got %d, %v; want %d", len(all["a"].numaNodes), err, maxNUMANodes)
	}
}

func TestWhichDeviceIDsPluginsMayHave(t *testing.T) {
	for name, tc := range map[string]struct {
		id string
		ok bool
	}{
		"a short one":    {"a", true},
		"the longest":    {strings.Repeat("x", maxDeviceID), true},
		"a longer one":   {strings.Repeat("x", maxDeviceID+1), false},
		"none":           {"", false},
		"no valid UTF-8": {"a\xff", false},
	} {
		all, err := devicesOf(healthy("first", tc.id))
		if (err == nil) != tc.ok || tc.ok && len(all) != 2 || err != nil && !strings.Contains(err.Error(), "want 1 to 1024 bytes of UTF-8") {
			t.Errorf("%s: got %d devices, %v", name, len(all), err)
		}
	}
}

// Health is Unknown while nobody says anything of a device (KEP-4680), and the pod is woken
// when that may have changed.
func TestTheHealthOfAPodsDevices(t *testing.T) {
	root := t.TempDir()
	s := had("uid-p", gpu, "a")
	s.Pods["uid-p"]["c"][gpu] = savedGrant{IDs: []string{"a", "b"}}
	write(t, root, s)
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		defer r.stop()
		first, second := newFake(), newFake()
		<-first.lists
		<-second.lists
		const healthy1, unhealthy, unknown = v1.ResourceHealthStatusHealthy, v1.ResourceHealthStatusUnhealthy, v1.ResourceHealthStatusUnknown
		for _, step := range []struct {
			name  string
			do    func()
			a, b  v1.ResourceHealthStatus
			woken int // so far
		}{
			{"after the start", func() {}, unknown, unknown, 0},
			{"its plugin has registered", func() { r.plug(gpu, first) }, unknown, unknown, 0},
			{"both are healthy", func() { first.lists <- healthy("a", "b") }, healthy1, healthy1, 1},
			{"one is sick", func() { first.lists <- sick("a", "b") }, unhealthy, healthy1, 2},
			{"one is not listed", func() { first.lists <- healthy("a") }, healthy1, unknown, 3},
			{"its plugin has ended", func() { close(first.lists) }, unknown, unknown, 4},
			{"another one has registered", func() { r.plug(gpu, second) }, unknown, unknown, 4},
			{"and lists", func() { second.lists <- healthy("a", "b") }, healthy1, healthy1, 5},
		} {
			step.do()
			synctest.Wait()
			want := map[string][]v1.ResourceStatus{"c": {{Name: gpu, Resources: []v1.ResourceHealth{{ResourceID: "a", Health: step.a}, {ResourceID: "b", Health: step.b}}}}}
			if got := r.Health("uid-p"); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %v, want %v", step.name, got, want)
			}
			if got := r.of("uid-p"); got != step.woken {
				t.Errorf("%s: the pod was woken %d times, want %d", step.name, got, step.woken)
			}
		}
	})
}

// A pod that waits for its devices, or did not get them, has no health to show.
func TestAPodThatHasNoDeviceYetHasNoHealth(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var ended []error
		r := plugged(t, root, hanging(&ended, "a"))
		defer r.stop()
		p := aPod("p", gpu, "1")
		_, _ = r.Admit(p)
		synctest.Wait()
		if got := r.Health(p.UID); got != nil {
			t.Errorf("got %v", got)
		}
		r.Release(p.UID)
		synctest.Wait()
	})
}
