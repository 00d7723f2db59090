package devices

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/pod"
)

func TestAContainerIsToldWhatItsPluginSays(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		refuse := true
		f.respond = func(context.Context, []string) (*pluginapi.ContainerAllocateResponse, error) {
			if refuse {
				return nil, errors.New("not today")
			}
			return &pluginapi.ContainerAllocateResponse{}, nil
		}
		f.options.PreStartRequired = true
		f.before = refusing("PreStartContainer").before
		r := plugged(t, root, f)
		defer r.stop()
		p := aPod("p", gpu, "1")
		ask := func() string {
			d, err := r.Container(t.Context(), p, &p.Spec.Containers[0])
			synctest.Wait()
			if err != nil {
				if d.Ready {
					t.Errorf("it is ready in spite of %v", err)
				}
				return err.Error()
			}
			return d.Reason + " " + d.Message
		}
		want := []string{
			"ContainerCreating waiting for the device plugin of example.com/gpu to allocate",
			"not today",
			"ContainerCreating waiting for the device plugin of example.com/gpu to allocate",
			"device plugin PreStartContainer rpc failed with err: no PreStartContainer today",
			"device plugin PreStartContainer rpc failed with err: endpoint example.com/gpu has been stopped",
		}
		got := []string{ask(), ask()}
		if n := r.of(p.UID); n != 1 {
			t.Errorf("the pod was woken %d times, want once, for the error", n)
		}
		refuse = false
		got = append(got, ask(), ask())
		close(f.lists)
		synctest.Wait()
		if got = append(got, ask()); !reflect.DeepEqual(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
	})
}

// An allocation that fails gives back what was reserved for it.
func TestAContainerThatWaitsIsWokenWhenAnAllocationFails(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var ended []error
		r := plugged(t, root, hanging(&ended, "a"))
		defer r.stop()
		p, q, gone := aPod("p", gpu, "1"), aPod("q", gpu, "1"), aPod("gone", gpu, "1")
		_, _ = r.Admit(p)
		synctest.Wait()
		for _, one := range []*v1.Pod{q, gone} {
			if d, err := r.Container(t.Context(), one, &one.Spec.Containers[0]); err != nil || d.Reason != pod.ReasonCreateContainerConfigError {
				t.Errorf("pod %s: got %+v, %v", one.Name, d, err)
			}
		}
		r.Release(gone.UID)
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if r.of(q.UID) != 1 || r.of(gone.UID) != 0 {
			t.Errorf("the pod that waits was woken %d times, the one that is gone %d times; want once and never", r.of(q.UID), r.of(gone.UID))
		}
	})
}

// What two plugins say of one name or place, the first says, by the names of the resources:
// a runtime refuses a container with two mounts at one place.
func TestWhatTwoPluginsGiveToOneContainer(t *testing.T) {
	response := func(name string) *pluginapi.ContainerAllocateResponse {
		return &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"BOTH": name, name: "own"}, Annotations: map[string]string{"both": name, name: "own"},
			Devices:    []*pluginapi.DeviceSpec{{HostPath: "/dev/" + name, ContainerPath: "/dev/both", Permissions: "r"}, {HostPath: "/dev/" + name, ContainerPath: "/dev/" + name, Permissions: "rwm"}},
			Mounts:     []*pluginapi.Mount{{HostPath: "/opt/" + name, ContainerPath: "/both"}, {HostPath: "/opt/" + name, ContainerPath: "/" + name, ReadOnly: true}},
			CdiDevices: []*pluginapi.CDIDevice{{Name: "example.com/both=0"}, {Name: "example.com/x=" + name}},
		}
	}
	got := mergeGrants(map[string]*grant{"example.com/z": {response: response("z")}, "example.com/a": {response: response("a")}})
	want := pod.ContainerDevices{
		Ready: true, Env: map[string]string{"BOTH": "a", "a": "own", "z": "own"}, Annotations: map[string]string{"both": "a", "a": "own", "z": "own"},
		Devices: []pod.Device{{HostPath: "/dev/a", ContainerPath: "/dev/both", Permissions: "r"}, {HostPath: "/dev/a", ContainerPath: "/dev/a", Permissions: "rwm"}, {HostPath: "/dev/z", ContainerPath: "/dev/z", Permissions: "rwm"}},
		Mounts:  []pod.Mount{{HostPath: "/opt/a", ContainerPath: "/both"}, {HostPath: "/opt/a", ContainerPath: "/a", ReadOnly: true}, {HostPath: "/opt/z", ContainerPath: "/z", ReadOnly: true}},
		CDI:     []string{"example.com/both=0", "example.com/x=a", "example.com/x=z"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A container of a pod that podd found running may have to wait for other pods' devices.
func TestAContainerWaitsForADevice(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		defer r.stop()
		r.plug(gpu, newFake("a"))
		synctest.Wait()
		holder, p := aPod("holder", gpu, "1"), aPod("p", gpu, "1")
		_, _ = r.Admit(holder)
		synctest.Wait()
		c := &p.Spec.Containers[0]
		if d, err := r.Container(t.Context(), p, c); err != nil || d.Ready || d.Reason != pod.ReasonCreateContainerConfigError || !strings.Contains(d.Message, "Available: 0") {
			t.Errorf("got %+v, %v", d, err)
		}
		r.Release(holder.UID)
		if r.of(p.UID) != 1 {
			t.Error("it is not woken")
		}
		if d, err := r.Container(t.Context(), p, c); err != nil || d.Ready || d.Reason != pod.ReasonContainerCreating {
			t.Errorf("got %+v, %v", d, err)
		}
		synctest.Wait()
		if r.of(p.UID) != 2 {
			t.Error("it is not woken")
		}
		if d, err := r.Container(t.Context(), p, c); err != nil || !d.Ready || d.Env["DEVICES"] != "a " {
			t.Errorf("got %+v, %v", d, err)
		}
		none := aPod("none", "cpu", "1")
		if d, err := r.Container(t.Context(), none, &none.Spec.Containers[0]); err != nil || !reflect.DeepEqual(d, pod.ContainerDevices{Ready: true}) {
			t.Errorf("a pod without devices: got %+v, %v", d, err)
		}
	})
}
