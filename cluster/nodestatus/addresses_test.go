package nodestatus

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// list reads addresses that are separated by spaces.
func list(s string) []netip.Addr {
	var all []netip.Addr
	for _, f := range strings.Fields(s) {
		all = append(all, netip.MustParseAddr(f))
	}
	return all
}

func TestTheNodesNameSaysWhichOfTheMachinesAddressesIsTheNodes(t *testing.T) {
	const local = "127.0.0.1 10.0.0.5 192.168.7.5 fd00::5 fe80::5 ::1"
	for named, want := range map[string]string{
		"192.168.7.5":                  "192.168.7.5",
		"fd00::5 192.168.7.5":          "192.168.7.5",
		"::ffff:192.168.7.5":           "192.168.7.5",
		"fd00::5":                      "fd00::5",
		"203.0.113.1 10.0.0.5":         "10.0.0.5",
		"203.0.113.1":                  "invalid IP",
		"127.0.0.1 ::1 fe80::5":        "invalid IP",
		"127.0.0.1 ::1 fd00::5":        "fd00::5",
		"":                             "invalid IP",
		"10.0.0.5 192.168.7.5 0.0.0.0": "10.0.0.5",
	} {
		if got := chooseIP(onInterfaces(list(named), list(local)), false); got.String() != want {
			t.Errorf("a name for %s: got %s, want %s", named, got, want)
		}
	}
	for routed, want := range map[string]string{"10.0.0.5 fd00::5": "10.0.0.5", "169.254.1.2 fd00::5": "fd00::5", "fe80::5": "invalid IP"} {
		if got := chooseIP(list(routed), false); got.String() != want {
			t.Errorf("routes from %s: got %s, want %s", routed, got, want)
		}
	}
}

// --node-ip=:: was published as the node's address.
func TestAnUnspecifiedAddressChoosesTheFamily(t *testing.T) {
	of := func(ip string) AddressConfig {
		return AddressConfig{InCluster: true, NodeName: "n", NodeIPs: list(ip)}
	}
	four, six := chooseIP(interfaceAddresses(), false), chooseIP(interfaceAddresses(), true)
	for ip, want := range map[string]netip.Addr{"0.0.0.0": four, "::": six} {
		if resolver(of(ip)) == nil {
			t.Errorf("--node-ip=%s: the node's name is not looked up", ip)
		}
		if got := addresses(of(ip), interfaceAddresses()); want.IsValid() && !slices.Equal(got, []string{want.String()}) {
			t.Errorf("--node-ip=%s: got %q, want %s", ip, got, want)
		} else if slices.Contains(got, ip) {
			t.Errorf("--node-ip=%s is published", ip)
		}
	}
	for from, want := range map[string]string{"10.0.0.5 fd00::5": "fd00::5", "fe80::5 10.0.0.5": "10.0.0.5"} {
		if got := chooseIP(list(from), true); got.String() != want {
			t.Errorf("IPv6 of %s: got %s, want %s", from, got, want)
		}
	}
}

func TestANodeNamedByAnAddressHasThatOne(t *testing.T) {
	if got := addresses(AddressConfig{NodeName: "10.9.8.7"}, list("192.168.7.5")); !slices.Equal(got, []string{"10.9.8.7"}) {
		t.Errorf("got %q", got)
	}
}

// The machine's own addresses are found without being told.
func TestOneAddressIsFoundWhereTheNameStandsForSeveral(t *testing.T) {
	all := interfaceAddresses()
	want := chooseIP(all, false)
	if !want.IsValid() {
		t.Skip("this machine has no address but loopback's")
	}
	if got := addresses(AddressConfig{NodeName: "n"}, all); !slices.Equal(got, []string{want.String()}) {
		t.Errorf("got %q, want %s", got, want)
	}
}

func TestASlowResolverDelaysNothingAndItsLastAnswerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type answer struct {
			after time.Duration
			named []netip.Addr
			err   error
		}
		var next atomic.Pointer[answer]
		next.Store(&answer{after: 5 * time.Second, named: list("10.0.0.5")})
		resolve := func(ctx context.Context) ([]netip.Addr, error) {
			n := next.Load()
			select {
			case <-time.After(n.after):
				return n.named, n.err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		a := newAddresses(func(named []netip.Addr) []string {
			if ip := chooseIP(named, false); ip.IsValid() {
				return []string{ip.String()}
			}
			return []string{"192.0.2.1"}
		}, resolve)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx, 10*time.Second) }()
		defer func() { cancel(); <-done }()
		look := func(what, want string, wait time.Duration) {
			t.Helper()
			started := time.Now()
			a.AwaitFirstLookup(ctx)
			a.Refresh()
			if took := time.Since(started); took != wait || !slices.Equal(a.Current(), []string{want}) {
				t.Errorf("%s: got %q after %s, want %s after %s", what, a.Current(), took, want, wait)
			}
		}
		look("the first state", "192.0.2.1", firstLookupTimeout)
		time.Sleep(11 * time.Second) // it was asked a second ago
		look("while it is asked", "192.0.2.1", 0)
		time.Sleep(10 * time.Second)
		look("it has answered", "10.0.0.5", 0)
		next.Store(&answer{err: errors.New("server misbehaving")})
		time.Sleep(time.Minute)
		look("it fails", "10.0.0.5", 0)
		next.Store(&answer{after: time.Hour})
		time.Sleep(time.Minute)
		look("it is silent", "10.0.0.5", 0)
		next.Store(&answer{err: &net.DNSError{IsNotFound: true}})
		time.Sleep(time.Minute)
		look("the name is gone", "192.0.2.1", 0)
	})
}

func TestPodsHaveTheAddressesThatACloudHasGivenTheNode(t *testing.T) {
	a := newAddresses(func([]netip.Addr) []string { return []string{"192.0.2.1"} }, nil)
	internal, external, name := v1.NodeInternalIP, v1.NodeExternalIP, v1.NodeHostName
	for _, step := range []struct {
		given []v1.NodeAddress
		want  []string
	}{
		{[]v1.NodeAddress{{Type: name, Address: "n"}}, []string{"192.0.2.1"}},
		{[]v1.NodeAddress{{Type: external, Address: "203.0.113.7"}, {Type: internal, Address: "10.0.0.7"}, {Type: name, Address: "n"}}, []string{"10.0.0.7"}},
		{[]v1.NodeAddress{{Type: internal, Address: "10.0.0.7"}, {Type: internal, Address: "10.0.0.8"}, {Type: external, Address: "2001:db8::7"}, {Type: internal, Address: "fd00::7"}}, []string{"10.0.0.7", "fd00::7"}},
		{[]v1.NodeAddress{{Type: external, Address: "203.0.113.7"}}, []string{"203.0.113.7"}},
		{[]v1.NodeAddress{{Type: internal, Address: "10.9.8.7"}}, []string{"10.9.8.7"}},
	} {
		a.SetFromNode(step.given)
		if a.Refresh(); !slices.Equal(a.Current(), step.want) {
			t.Errorf("%+v: got %q, want %q", step.given, a.Current(), step.want)
		}
	}
}

func TestOnlyTheNodeOfAClusterAsksWhatItsNameStandsFor(t *testing.T) {
	for _, cfg := range []AddressConfig{{}, {InCluster: true, NodeIPs: list("10.0.0.5")}} {
		if resolver(cfg) != nil {
			t.Errorf("%+v: the resolver is asked", cfg)
		}
	}
	if resolver(AddressConfig{InCluster: true, NodeName: "n"}) == nil {
		t.Error("the node of a cluster does not ask")
	}
}

func TestTheNodesAddressesFollowTheMachines(t *testing.T) {
	found := []string{"192.0.2.1"}
	a := newAddresses(func([]netip.Addr) []string { return found }, nil)
	for _, step := range []struct {
		what    string
		found   []string
		changed bool
		want    []string
	}{
		{"the same", []string{"192.0.2.1"}, false, []string{"192.0.2.1"}},
		{"a cable that is out", nil, false, []string{"192.0.2.1"}},
		{"another one", []string{"192.0.2.2"}, true, []string{"192.0.2.2"}},
		{"again", []string{"192.0.2.2"}, false, []string{"192.0.2.2"}},
		{"a second family", []string{"192.0.2.2", "2001:db8::2"}, true, []string{"192.0.2.2", "2001:db8::2"}},
	} {
		found = step.found
		before := a.Current()
		had := slices.Clone(before)
		if changed := a.Refresh(); changed != step.changed || !slices.Equal(a.Current(), step.want) {
			t.Errorf("%s: got %t, %q, want %t, %q", step.what, changed, a.Current(), step.changed, step.want)
		}
		if !slices.Equal(before, had) {
			t.Errorf("%s: what somebody reads was changed to %q", step.what, before)
		}
	}
}
