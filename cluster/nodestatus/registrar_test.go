package nodestatus

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestANodeIsRegisteredAndThenCostsNothingWhileNothingChanges(t *testing.T) {
	registering(t, &server{}, func(b *bed) {
		time.Sleep(time.Second)
		b.want("start", "create")
		n := b.node()
		if n.Labels["disk"] != "ssd" || n.Labels[v1.LabelHostname] != "node0" || len(n.Spec.Taints) != 1 || len(n.Status.Addresses) != 3 {
			b.t.Errorf("got %+v", n)
		}
		if ready := b.condition(v1.NodeReady); ready.Status != v1.ConditionTrue || ready.Message != "kubelet is posting ready status" {
			b.t.Errorf("got %+v", ready)
		}
		b.server.did()
		since := b.condition(v1.NodeReady).LastTransitionTime
		time.Sleep(time.Hour)
		reports := b.server.did()
		if len(reports) < 11 || len(reports) > 13 {
			b.t.Errorf("got %d requests in an hour, want one in five minutes", len(reports))
		}
		ready := b.condition(v1.NodeReady)
		if time.Since(ready.LastHeartbeatTime.Time) > 10*time.Minute || !ready.LastTransitionTime.Equal(&since) {
			b.t.Errorf("got %+v", ready)
		}
	})
}

func TestAChangeOfReadinessIsToldAtTheNextLookAndAtOnceWhenPoked(t *testing.T) {
	registering(t, &server{}, func(b *bed) {
		time.Sleep(5 * time.Second)
		b.server.did()
		b.set(State{NotReady: errors.New("container runtime is down: no answer"), MemoryPressure: true})
		time.Sleep(6 * time.Second)
		b.want("the next look", "patch status")
		if c := b.condition(v1.NodeReady); c.Status != v1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != "container runtime is down: no answer" {
			b.t.Errorf("got %+v", c)
		}
		b.set(State{})
		b.Wake()
		time.Sleep(time.Second)
		b.want("poked", "patch status")
		if want := []string{"NodeHasInsufficientMemory", "NodeNotReady", "NodeHasSufficientMemory", "NodeReady"}; !slices.Equal(b.happened(), want) {
			b.t.Errorf("got events %q, want %q", b.happened(), want)
		}
	})
}

func TestPressuresAreToldInTheKubeletsWords(t *testing.T) {
	registering(t, &server{}, func(b *bed) {
		time.Sleep(5 * time.Second)
		for _, c := range []struct {
			of      v1.NodeConditionType
			under   State
			yes, no string // reason: message
		}{
			{v1.NodeMemoryPressure, State{MemoryPressure: true}, "KubeletHasInsufficientMemory: kubelet has insufficient memory available", "KubeletHasSufficientMemory: kubelet has sufficient memory available"},
			{v1.NodeDiskPressure, State{DiskPressure: true}, "KubeletHasDiskPressure: kubelet has disk pressure", "KubeletHasNoDiskPressure: kubelet has no disk pressure"},
			{v1.NodePIDPressure, State{PIDPressure: true}, "KubeletHasInsufficientPID: kubelet has insufficient PID available", "KubeletHasSufficientPID: kubelet has sufficient PID available"},
		} {
			for _, under := range []struct {
				state  State
				status v1.ConditionStatus
				says   string
			}{{State{}, v1.ConditionFalse, c.no}, {c.under, v1.ConditionTrue, c.yes}, {State{}, v1.ConditionFalse, c.no}} {
				b.set(under.state)
				b.Wake()
				time.Sleep(time.Second)
				if got := b.condition(c.of); got.Status != under.status || got.Reason+": "+got.Message != under.says {
					b.t.Errorf("got %+v, want %s, %s", got, under.status, under.says)
				}
				if ready := b.condition(v1.NodeReady); ready.Status != v1.ConditionTrue {
					b.t.Errorf("under pressure it is not ready: %+v", ready)
				}
			}
		}
		want := []string{"NodeHasInsufficientMemory", "NodeHasSufficientMemory", "NodeHasDiskPressure", "NodeHasNoDiskPressure", "NodeHasInsufficientPID", "NodeHasSufficientPID"}
		if !slices.Equal(b.happened(), want) {
			b.t.Errorf("got events %q, want %q", b.happened(), want)
		}
	})
}

func TestAnotherAddressIsToldAtTheNextLook(t *testing.T) {
	registering(t, &server{}, func(b *bed) {
		time.Sleep(5 * time.Second)
		b.server.did()
		b.set(State{Addresses: []string{"10.0.0.2"}})
		time.Sleep(6 * time.Second)
		b.want("the next look", "patch status")
		want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.2"}, {Type: v1.NodeHostName, Address: "node0"}}
		if got := b.node().Status.Addresses; !slices.Equal(got, want) {
			b.t.Errorf("got %+v, want %+v", got, want)
		}
		time.Sleep(time.Minute)
		b.want("later")
	})
}

// The cluster says Unknown of a node that it has not heard of for long.
func TestWhatTheClusterSaidOfASilentNodeIsCorrectedAtOnce(t *testing.T) {
	registering(t, &server{}, func(b *bed) {
		time.Sleep(time.Second)
		b.server.did()
		b.server.write(func(n *v1.Node) *v1.Node {
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].Status, n.Status.Conditions[i].Reason = v1.ConditionUnknown, "NodeStatusUnknown"
			}
			return n
		})
		time.Sleep(time.Second)
		b.want("corrected", "patch status")
		if c := b.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
			b.t.Errorf("got %+v", c)
		}
	})
}

func TestCordonsAreEventsAndStay(t *testing.T) {
	registering(t, &server{}, func(b *bed) {
		time.Sleep(time.Second)
		b.server.write(func(n *v1.Node) *v1.Node { n.Spec.Unschedulable = true; return n })
		time.Sleep(time.Second)
		b.server.write(func(n *v1.Node) *v1.Node { n.Spec.Unschedulable = false; return n })
		time.Sleep(time.Minute)
		if want := []string{"NodeNotSchedulable", "NodeSchedulable"}; !slices.Equal(b.happened(), want) {
			b.t.Errorf("got events %q, want %q", b.happened(), want)
		}
		b.want("nothing else", "create")
	})
}

func TestAnExistingNodeKeepsWhatOthersSaidOfIt(t *testing.T) {
	s := &server{node: &v1.Node{}}
	s.node.Name, s.node.UID = "node0", "old"
	s.node.Labels = map[string]string{"team": "a", "disk": "hdd"}
	s.node.Spec.Unschedulable = true
	s.node.Status.Capacity = v1.ResourceList{"example.com/gpu": resource.MustParse("1"), "hugepages-2Mi": resource.MustParse("1Gi")}
	s.node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.9.9.9"}}
	registering(t, s, func(b *bed) {
		time.Sleep(time.Second)
		b.want("start", "create", "get", "patch status", "patch status")
		n := b.node()
		if n.UID != "old" || n.Labels["team"] != "a" || n.Labels["disk"] != "hdd" || n.Labels[v1.LabelOSStable] != "linux" || !n.Spec.Unschedulable || len(n.Spec.Taints) > 0 {
			b.t.Errorf("got %+v", n)
		}
		if _, ok := n.Status.Capacity["example.com/gpu"]; !ok {
			b.t.Error("a resource of others is gone")
		}
		if _, ok := n.Status.Capacity["hugepages-2Mi"]; ok {
			b.t.Error("huge pages that the machine does not have are still there")
		}
		if a := n.Status.Addresses; len(a) != 3 || a[0].Address != "10.0.0.1" || a[1].Address != "fd00::1" {
			b.t.Errorf("got addresses %+v", a)
		}
	})
}

// Who may create Nodes is asked before whether there is one.
func TestAnExistingNodeIsAdoptedByWhoMayNotCreateOne(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node0", errors.New("a policy"))
	existing := &v1.Node{}
	existing.Name, existing.UID = "node0", "old"
	registering(t, &server{node: existing, forbidden: forbidden}, func(b *bed) {
		time.Sleep(time.Second)
		b.want("start", "create", "get", "patch status", "patch status")
		if n := b.node(); n.UID != "old" || n.Labels[v1.LabelHostname] != "node0" || len(n.Status.Conditions) == 0 {
			b.t.Errorf("got %+v", n)
		}
	})
	r := New(Config{
		Client: &server{forbidden: forbidden}, Facts: facts(), Register: true, State: func(context.Context) State { return State{} },
	})
	if err := r.tryRegister(t.Context()); !errors.Is(err, forbidden) {
		t.Errorf("without a Node: got %v, want %v", err, forbidden)
	}
}

func TestAMachineThatWasRebootedSaysSoOnce(t *testing.T) {
	for before, want := range map[string][]string{"": nil, "boot-2": nil, "boot-1": {"Rebooted"}} {
		existing := &v1.Node{}
		existing.Name, existing.Status.NodeInfo.BootID = "node0", before
		registering(t, &server{node: existing}, func(b *bed) {
			time.Sleep(time.Second)
			b.server.write(func(n *v1.Node) *v1.Node { n.Status.NodeInfo.BootID = before; return n }) // what somebody restored
			time.Sleep(time.Hour)
			told := slices.DeleteFunc(b.happened(), func(reason string) bool { return reason != "Rebooted" })
			if !slices.Equal(told, want) {
				b.t.Errorf("after %q: got events %q, want %q", before, b.happened(), want)
			}
			if message := "Warning: Node node0 has been rebooted, boot id: boot-2"; len(want) > 0 && !slices.Contains(b.said, message) {
				b.t.Errorf("got %q, want %q", b.said, message)
			}
			if got := b.node().Status.NodeInfo.BootID; got != "boot-2" {
				b.t.Errorf("got the boot ID %s", got)
			}
		})
	}
}

func TestRegistrationWaitsForAnApiserverThatIsAway(t *testing.T) {
	registering(t, &server{away: true}, func(b *bed) {
		time.Sleep(10 * time.Minute)
		b.want("away")
		b.server.mu.Lock()
		b.server.away = false
		b.server.mu.Unlock()
		time.Sleep(registerBackoff.Max + time.Second)
		b.want("back", "create")
	})
}

func TestANodeThatWasDeletedIsNotRegisteredBehindItsOperatorsBack(t *testing.T) {
	registering(t, &server{}, func(b *bed) {
		time.Sleep(time.Second)
		b.server.did()
		b.server.write(func(*v1.Node) *v1.Node { return nil })
		time.Sleep(time.Hour)
		b.want("deleted")
	})
}

// TestSeenIsCalledWithoutALock, by one at a time, with versions in their order and the newest
// at the end.
func TestSeenIsCalledWithoutALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version := func(n int) *v1.Node {
			node := &v1.Node{}
			node.UID, node.ResourceVersion = "u", strconv.Itoa(n)
			return node
		}
		var r *Registrar
		var seen []int
		var calls atomic.Int32
		r = New(Config{OnNodeUpdate: func(n *v1.Node) {
			if now := r.Node(); newer(n, now) && n != now {
				t.Errorf("version %s is seen before it is kept", n.ResourceVersion)
			}
			if calls.Add(1) > 1 {
				t.Errorf("version %s is passed while another one is", n.ResourceVersion)
			}
			defer calls.Add(-1)
			at, _ := strconv.Atoi(n.ResourceVersion)
			seen = append(seen, at)
			time.Sleep(time.Second) // others observe newer ones meanwhile
		}})
		var all sync.WaitGroup
		for n := 1; n <= 100; n++ {
			all.Go(func() {
				time.Sleep(time.Duration(n) * 100 * time.Millisecond)
				r.ObserveNode(version(n))
			})
		}
		all.Wait()
		if !slices.IsSorted(seen) || seen[len(seen)-1] != 100 {
			t.Errorf("got the versions %v, want them in order up to the newest", seen)
		}
		r.ObserveNode(version(101))
		if got := seen[len(seen)-1]; got != 101 {
			t.Errorf("later: got the version %d, want 101", got)
		}
	})
}
