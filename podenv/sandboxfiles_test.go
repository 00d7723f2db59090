package podenv

import (
	"os"
	"testing"

	"podd/internal/pod"
)

// TestASandboxsFilesAreAsRuntimesWriteThem, containerd for example.
func TestASandboxsFilesAreAsRuntimesWriteThem(t *testing.T) {
	node, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	nodeResolv, _ := os.ReadFile(pod.EtcResolvConf)
	for _, tc := range []struct {
		name, hostname   string
		dns              pod.DNS
		resolv, hostFile string
	}{
		{"all", "web", pod.DNS{Servers: []string{"192.0.2.1", "2001:db8::1"}, Searches: []string{"a.test", "b.test"}, Options: []string{"ndots:5", "rotate"}},
			"search a.test b.test\nnameserver 192.0.2.1\nnameserver 2001:db8::1\noptions ndots:5 rotate\n", "web\n"},
		{"servers alone", "web", pod.DNS{Servers: []string{"192.0.2.1"}}, "nameserver 192.0.2.1\n", "web\n"},
		{"nothing, on the node's network", "", pod.DNS{}, string(nodeResolv), node + "\n"},
	} {
		resolv, hostname, err := sandboxFiles(tc.dns, tc.hostname)
		if err != nil || string(resolv) != tc.resolv || string(hostname) != tc.hostFile || resolv == nil {
			t.Errorf("%s: got %q and %q (%v), want %q and %q", tc.name, resolv, hostname, err, tc.resolv, tc.hostFile)
		}
	}
}
