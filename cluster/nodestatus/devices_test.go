package nodestatus

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func amounts(n *v1.Node, name v1.ResourceName) [2]int64 {
	c, a := n.Status.Capacity[name], n.Status.Allocatable[name]
	return [2]int64{c.Value(), a.Value()}
}

func TestTheNodeShowsDevices(t *testing.T) {
	list := func(n string) v1.ResourceList { return v1.ResourceList{"example.com/gpu": resource.MustParse(n)} }
	s := &server{node: &v1.Node{}}
	s.node.Name = "node0"
	s.node.Status.Capacity = v1.ResourceList{"example.com/gpu": resource.MustParse("7"), "example.com/other": resource.MustParse("3")}
	registering(t, s, func(b *bed) {
		for _, tc := range [][2]string{{"2", "1"}, {"0", "0"}, {"10000", "9999"}} {
			b.set(State{DeviceCapacity: list(tc[0]), DeviceAllocatable: list(tc[1])})
			b.Wake()
			time.Sleep(time.Second)
			c, a := resource.MustParse(tc[0]), resource.MustParse(tc[1])
			if got := amounts(b.node(), "example.com/gpu"); got != [2]int64{c.Value(), a.Value()} {
				b.t.Errorf("got %v, want %v", got, tc)
			}
		}
		b.server.did()
		b.Wake()
		time.Sleep(time.Second)
		b.want("nothing has changed")
		if got := amounts(b.node(), "example.com/other"); got[0] != 3 {
			b.t.Errorf("another's resource: got %v", got)
		}
	})
}

// A machine that was set up anew has not the devices that it had.
func TestAFreshNodeHasNoneOfItsFormerDevices(t *testing.T) {
	f := Facts{Capacity: v1.ResourceList{"cpu": resource.MustParse("2")}}
	n := &v1.Node{}
	n.Status.Capacity = v1.ResourceList{"example.com/gpu": resource.MustParse("7"), "cpu": resource.MustParse("4")}
	zeroExtendedResources(n.Status.Capacity)
	f.update(n, State{}, metav1.Now())
	if got := amounts(n, "example.com/gpu"); got[0] != 0 || n.Status.Capacity.Cpu().Value() != 2 {
		t.Errorf("got %v", n.Status.Capacity)
	}
}

// Whoever advertises an extended resource writes its capacity, and nothing else.
func TestAnExtendedResourceIsAllocatableAsLongAsItIsInTheCapacity(t *testing.T) {
	const dongle = "example.com/dongle"
	registering(t, &server{}, func(b *bed) {
		time.Sleep(time.Second)
		for _, n := range []string{"4", "2", ""} {
			b.server.write(func(of *v1.Node) *v1.Node {
				delete(of.Status.Capacity, dongle)
				if n != "" {
					of.Status.Capacity[dongle] = resource.MustParse(n)
				}
				return of
			})
			time.Sleep(time.Second)
			c, has := b.node().Status.Capacity[dongle]
			a, usable := b.node().Status.Allocatable[dongle]
			if has != (n != "") || usable != has || a.Cmp(c) != 0 || has && c.String() != n {
				b.t.Errorf("capacity %q: got %s (%t), allocatable %s (%t)", n, &c, has, &a, usable)
			}
		}
	})
}
