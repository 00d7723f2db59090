package devices

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/checkpoint"
	"podd/internal/pod"
)

// What plugins have pods do, and with which variables, is nobody else's to read.
func TestTheCheckpointIsForRootAlone(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := plugged(t, root, newFake("a"))
		defer r.stop()
		_, _ = r.Admit(aPod("p", gpu, "1"))
		synctest.Wait()
		info, err := os.Stat(filepath.Join(root, "devices.json"))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("got %v, %v; want mode 0600", info.Mode(), err)
		}
	})
}

// The next podd must know that it is not the first one, whether there are pods or not.
func TestOnlyTheFirstPoddIsFresh(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := looped(t, root)
		synctest.Wait()
		r.stop()
		if next := newRig(t, root); !r.ShouldResetExtendedResourceCapacity() || next.ShouldResetExtendedResourceCapacity() {
			t.Errorf("fresh: the first one %t, the second one %t", r.ShouldResetExtendedResourceCapacity(), next.ShouldResetExtendedResourceCapacity())
		}
	})
}

func TestAnUnchangedCheckpointIsNotWrittenAgain(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		r := plugged(t, root, f)
		defer r.stop()
		if err := os.Remove(r.checkpoint.Path); err != nil {
			t.Fatal(err)
		}
		f.lists <- healthy("a", "b") // the loop goes round
		synctest.Wait()
		if _, err := os.Stat(r.checkpoint.Path); err == nil {
			t.Error("it was written though no pod has other devices")
		}
	})
}

// Better a pod that runs than none: but after a restart its devices would be given to another
// one, and the operator can still help it.
func TestACheckpointThatCannotBeWrittenIsLogged(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := plugged(t, root, newFake("a"))
		defer r.stop()
		const want = "cannot save which pods have which devices"
		if got := r.logged.String(); strings.Contains(got, want) {
			t.Errorf("while it can be: the log has %s", got)
		}
		if err := os.Mkdir(r.checkpoint.Path+".new", 0o700); err != nil { // in the way
			t.Fatal(err)
		}
		p := aPod("p", gpu, "1")
		_, _ = r.Admit(p)
		synctest.Wait()
		if waits, err := r.Admit(p); waits != "" || err != nil {
			t.Errorf("got %q, %v: want that it is admitted", waits, err)
		}
		if got := r.logged.String(); !strings.Contains(got, want) {
			t.Errorf("the log has %s, want %q", got, want)
		}
	})
}

// podd may be killed at any time.
func TestAResourceIsSavedAsSoonAsItIsListed(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := plugged(t, root, newFake("a"))
		defer r.stop()
		if all, _ := newRig(t, root).amount(gpu); all != 0 {
			t.Errorf("the next podd has %d of it, want a resource of which there is none yet", all)
		}
	})
}

// A resource that is gone, or was never listed, is none of the next podd's.
func TestWhichResourcesTheNextPoddKnows(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		r := plugged(t, root, f)
		r.plug(nic, newFake("n"))
		silent := newFake()
		<-silent.lists
		r.plug("example.com/silent", silent)
		synctest.Wait()
		close(f.lists)
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		r.stop()
		next := newRig(t, root)
		for name, want := range map[string]int64{gpu: -1, nic: 0, "example.com/silent": -1} {
			if all, _ := next.amount(name); all != want {
				t.Errorf("%s: got %d, want %d", name, all, want)
			}
		}
	})
}

// write makes a checkpoint of an earlier podd.
func write(t *testing.T, root string, s checkpointData) {
	t.Helper()
	content, err := checkpoint.Checksummed.Encode(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "devices.json"), content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// had is what an earlier podd says of a pod with one device.
func had(uid pod.UID, resource, id string) checkpointData {
	return checkpointData{Version: 1, Pods: map[pod.UID]map[string]map[string]savedGrant{uid: {"c": {resource: {IDs: []string{id}}}}}}
}

// What a checkpoint says is bounded and checked like what plugins say.
func TestTheResourcesOfACheckpointAreChecked(t *testing.T) {
	root := t.TempDir()
	s := checkpointData{Version: 1, Resources: []string{"cpu", "kubernetes.io/gpu"}}
	for i := range maxResources + 2 {
		s.Resources = append(s.Resources, fmt.Sprintf("example.com/gpu%d", i))
	}
	write(t, root, s)
	r := newRig(t, root)
	all, _ := r.Resources()
	if len(all) != maxResources {
		t.Errorf("got %d resources, want %d", len(all), maxResources)
	}
	for _, name := range s.Resources[:2] {
		if _, there := all[v1.ResourceName(name)]; there {
			t.Errorf("%s is a resource of device plugins", name)
		}
	}
}

// The operator is told which part of a checkpoint cannot be read.
func TestWhyACheckpointCannotBeUsed(t *testing.T) {
	nonsense := had("uid-p", gpu, "a")
	nonsense.Pods["uid-p"]["c"][gpu] = savedGrant{IDs: []string{"a"}, Response: []byte("\xff")}
	for name, tc := range map[string]struct {
		saved checkpointData
		want  string
	}{
		"a later version":     {checkpointData{Version: 2}, "version 2 of it is not known"},
		"a plugin's response": {nonsense, "decode the response of the plugin of example.com/gpu: "},
	} {
		root := t.TempDir()
		write(t, root, tc.saved)
		r := newRig(t, root)
		all := r.Problems()
		if len(all) != 1 || !all[0].Warning || all[0].Origin != r.checkpoint.Path || !strings.Contains(all[0].Message, tc.want) || !strings.Contains(all[0].Hint, r.checkpoint.Path+".broken") {
			t.Errorf("%s: got %+v, want %q", name, all, tc.want)
		}
		if r.Health("uid-p") != nil {
			t.Errorf("%s: a pod has devices all the same", name)
		}
	}
}

// A pod that had a device of a resource that was gone by then is not failed at once: its
// plugin may come back with the node, but need not, and is awaited like a new one.
func TestAPodWhoseResourceWasGoneBeforeTheStartWaitsLikeForANewOne(t *testing.T) {
	root := t.TempDir()
	write(t, root, had("uid-p", gpu, "a"))
	synctest.Test(t, func(t *testing.T) {
		r := unsettled(t, root).loops()
		defer r.stop()
		p := aPod("p", gpu, "1")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if waits, err := r.Admit(p); waits != "waiting for the device plugin of example.com/gpu to register" || err != nil {
			t.Errorf("after 9 s: got %q, %v", waits, err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if waits, err := r.Admit(p); waits != "" || err == nil || err.Error() != "cannot allocate unregistered device example.com/gpu" {
			t.Errorf("after 11 s: got %q, %v", waits, err)
		}
	})
}

// A device that fails under a container takes nothing from it, also if podd was restarted
// since; one that podd has never seen healthy may have been another pod's meanwhile.
func TestADeviceOfBeforeTheStartIsThePodsOnceItWasSeenHealthy(t *testing.T) {
	for name, tc := range map[string]struct {
		lists [][]*pluginapi.Device
		ready bool
	}{
		"seen healthy":     {[][]*pluginapi.Device{healthy("a", "b"), sick("a", "b")}, true},
		"then not listed":  {[][]*pluginapi.Device{healthy("a", "b"), healthy("b")}, true},
		"never healthy":    {[][]*pluginapi.Device{sick("a", "b")}, false},
		"never listed":     {[][]*pluginapi.Device{healthy("b")}, false},
		"healthy at last":  {[][]*pluginapi.Device{sick("a", "b"), healthy("a", "b")}, true},
		"another resource": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			s := had("uid-p", gpu, "a")
			s.Pods["uid-q"] = map[string]map[string]savedGrant{"c": {nic: {IDs: []string{"n"}}}}
			write(t, root, s)
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				<-f.lists
				r := plugged(t, root, f)
				defer r.stop()
				for _, list := range tc.lists {
					f.lists <- list
					synctest.Wait()
				}
				p := aPod("p", gpu, "1")
				d, err := r.Container(t.Context(), p, &p.Spec.Containers[0])
				if err != nil || d.Ready != tc.ready {
					t.Errorf("got %+v, %v; want ready %t", d, err, tc.ready)
				}
			})
		})
	}
}

// sick is a list whose first device is unhealthy.
func sick(first string, others ...string) []*pluginapi.Device {
	return append(healthy(others...), &pluginapi.Device{ID: first, Health: pluginapi.Unhealthy})
}

// After a start, plugins that were there before have 30 s to come back, and those of static
// pods that nobody has seen yet 10 s.
func TestHowLongPodsWaitForPluginsAfterTheStart(t *testing.T) {
	root := t.TempDir()
	write(t, root, checkpointData{Version: 1, Resources: []string{gpu}})
	synctest.Test(t, func(t *testing.T) {
		r := unsettled(t, root).loops()
		defer r.stop()
		began := time.Now()
		waited := map[string]time.Duration{}
		for range 60 {
			for _, p := range []*v1.Pod{fromFile(aPod("static", nic, "1")), aPod("web", gpu, "1")} {
				if waits, _ := r.Admit(p); waits != "" {
					waited[p.Name] = time.Since(began)
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if waited["static"] != 9*time.Second || waited["web"] != 29*time.Second {
			t.Errorf("they waited still after %v; want 9 s for the static pod and 29 s for the other one", waited)
		}
	})
}

// A call of the former plugin that podd reads late says nothing of the devices of the next.
func TestALateListOfAnOldPluginIsIgnored(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := plugged(t, root, newFake("a"))
		defer r.stop()
		former := r.resources[gpu].plugins[0]
		r.plug(gpu, newFake("b"))
		synctest.Wait()
		if err := r.updateDevices(gpu, former, healthy("x", "y", "z")); err != nil {
			t.Error(err)
		}
		if all, _ := r.amount(gpu); all != 1 {
			t.Errorf("got %d devices, want the next one's", all)
		}
	})
}

// A plugin may list its devices each second: the log is for what people would tell each other.
func TestAPluginThatListsOftenIsLoggedOnce(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		r := plugged(t, root, f)
		defer r.stop()
		for range 3 {
			f.lists <- healthy("a", "b")
			f.lists <- healthy("a")
			f.lists <- healthy("a")
		}
		synctest.Wait()
		if n := strings.Count(r.logged.String(), "device plugin has listed its devices"); n != 1 {
			t.Errorf("%d lines in the log, want one:\n%s", n, r.logged)
		}
	})
}
