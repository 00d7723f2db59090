package agent

import (
	"testing"

	"podd/internal/pod"
)

// TestPodsAreAskedInTheNodesFamily, and those on the host's network where
// Config says.
func TestPodsAreAskedInTheNodesFamily(t *testing.T) {
	both := []string{"10.0.0.2", "fd00::2"}
	for name, tc := range map[string]struct {
		node    []string
		sandbox pod.Sandbox
		want    string
	}{
		"a node of IPv4":                {[]string{"192.0.2.1", "2001:db8::1"}, pod.Sandbox{IPs: both}, "10.0.0.2"},
		"a node of IPv6":                {[]string{"2001:db8::1", "192.0.2.1"}, pod.Sandbox{IPs: both}, "fd00::2"},
		"an address of the other alone": {[]string{"2001:db8::1"}, pod.Sandbox{IPs: both[:1]}, "10.0.0.2"},
		"the host's network":            {[]string{"192.0.2.1"}, pod.Sandbox{HostNetwork: true}, "127.0.0.1"},
		"no network yet":                {[]string{"192.0.2.1"}, pod.Sandbox{}, ""},
	} {
		w := &worker{agent: &Agent{cfg: Config{Parts: Parts{HostIP: func() string { return "127.0.0.1" }, NodeIPs: tc.node}}}}
		if got := w.addressOf(&tc.sandbox); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
