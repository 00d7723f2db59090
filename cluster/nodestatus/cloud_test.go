package nodestatus

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestACloudControllerManagerInitializesTheNode(t *testing.T) {
	hostname := v1.NodeAddress{Type: v1.NodeHostName, Address: "node0"}
	for given, tc := range map[string]struct {
		annotation string
		addresses  []v1.NodeAddress
	}{
		"":                     {"", []v1.NodeAddress{hostname}},
		"10.0.0.1":             {"10.0.0.1", []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, hostname}},
		"10.0.0.1 2001:db8::1": {"10.0.0.1,2001:db8::1", []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, hostname}},
		"::":                   {"", []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, hostname}},
	} {
		f := facts()
		f.ExternalCloudProvider, f.NodeIPs = true, ips(given)
		n := f.newNode(State{Addresses: []string{"10.0.0.1"}}, metav1.Now())
		if got := n.Annotations[annotationProvidedNodeIP]; got != tc.annotation || !slices.Equal(n.Status.Addresses, tc.addresses) {
			t.Errorf("--node-ip=%s: got %q, %+v, want %q, %+v", given, got, n.Status.Addresses, tc.annotation, tc.addresses)
		}
		want := append(facts().Taints, v1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule})
		if !slices.Equal(n.Spec.Taints, want) {
			t.Errorf("got taints %+v, want %+v", n.Spec.Taints, want)
		}
		f.ExternalCloudProvider = false
		f.adopt(n)
		if got, ok := n.Annotations[annotationProvidedNodeIP]; ok {
			t.Errorf("without a cloud, the annotation %q stays", got)
		}
	}
}

func ips(s string) []netip.Addr {
	var all []netip.Addr
	for f := range strings.FieldsSeq(s) {
		all = append(all, netip.MustParseAddr(f))
	}
	return all
}

// podd replaced them within a second.
func TestTheAddressesOfACloudControllerManagerStay(t *testing.T) {
	f := facts()
	f.ExternalCloudProvider, f.NodeIPs = true, ips("10.0.0.1")
	registeringAs(t, &server{}, f, func(b *bed) {
		time.Sleep(time.Second)
		clouds := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.7"}, {Type: v1.NodeExternalIP, Address: "203.0.113.7"}, {Type: v1.NodeHostName, Address: "node0"}}
		b.server.write(func(n *v1.Node) *v1.Node { n.Status.Addresses, n.Spec.Taints = clouds, nil; return n })
		b.set(State{Addresses: []string{"10.0.0.2"}, MemoryPressure: true})
		time.Sleep(time.Minute)
		if n := b.node(); !slices.Equal(n.Status.Addresses, clouds) || len(n.Spec.Taints) > 0 || n.Annotations[annotationProvidedNodeIP] != "10.0.0.1" {
			b.t.Errorf("got %+v", n)
		}
		if c := b.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionTrue {
			b.t.Errorf("got %+v, want the rest of the status kept up", c)
		}
	})
}

func TestAnExistingNodeTellsACloudControllerManagerItsAddress(t *testing.T) {
	existing := &v1.Node{}
	existing.Name = "node0"
	f := facts()
	f.ExternalCloudProvider, f.NodeIPs = true, ips("10.0.0.1")
	registeringAs(t, &server{node: existing}, f, func(b *bed) {
		time.Sleep(time.Second)
		if n := b.node(); n.Annotations[annotationProvidedNodeIP] != "10.0.0.1" || len(n.Spec.Taints) > 0 {
			b.t.Errorf("got %+v", n)
		}
	})
}

func TestTheAnnotationForACloudControllerManagerIsRestored(t *testing.T) {
	f := facts()
	f.ExternalCloudProvider, f.NodeIPs = true, ips("10.0.0.1")
	registeringAs(t, &server{}, f, func(b *bed) {
		time.Sleep(time.Second)
		b.server.write(func(n *v1.Node) *v1.Node { n.Annotations = nil; return n })
		b.set(State{MemoryPressure: true}) // annotations alone are not looked at
		time.Sleep(time.Minute)
		if got := b.node().Annotations[annotationProvidedNodeIP]; got != "10.0.0.1" {
			b.t.Errorf("got %q, want the configured address", got)
		}
	})
}
