package cni

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"podd/cni/cnitest"
)

// TestPodsDoNotReachTheNodesLoopback: portmap lets 127/8 through the bridge from
// the first hostPort on (route_localnet), and a pod with a raw socket then sent a
// frame for 127.0.0.1 to the bridge's MAC and was answered: CVE-2020-8558.
func TestPodsDoNotReachTheNodesLoopback(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making networks needs root")
	}
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) { podsDoNotReachLoopback(t, backend) })
	}
}

func podsDoNotReachLoopback(t *testing.T, backend string) {
	if backend == "iptables" && findTool("iptables") == "" {
		t.Skip("needs iptables")
	}
	dir := t.TempDir()
	node := filepath.Join(dir, "node")
	newNetNS(t, node)
	n, err := New(Config{
		Bridge: "poddt2", PodCIDR: netip.MustParsePrefix("10.204.0.0/24"), BinDirs: []string{bundleDir(t)},
		ConfDir: filepath.Join(dir, "net.d"), LeaseDir: filepath.Join(dir, "leases"),
		CacheDir: filepath.Join(dir, "cache"), NetNSDir: filepath.Join(dir, "netns"), NetNSPrefix: "cni-",
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if backend == "iptables" {
		n.find = func(tool string) string {
			if tool == "nft" {
				return ""
			}
			return findTool(tool)
		}
	}
	inNetNS(t, node, func() error { return n.SetUp(t.Context()) })
	address := netip.MustParseAddr(addPod(t, n, node, "hostile", 0))
	var services *cnitest.Services
	inNetNS(t, node, func() (err error) {
		services, err = cnitest.Serve(t, "poddt2", netip.MustParseAddr("10.204.0.1"))
		return err
	})
	reached := func(hostPort uint16) (got []string) {
		t.Helper()
		inNetNS(t, filepath.Join(n.cfg.NetNSDir, "cni-hostile"), func() error {
			eth0, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			answered, err := cnitest.Knock("eth0", services.Frames(eth0.HardwareAddr, address, hostPort))
			if err != nil {
				return err
			}
			got, err = services.Reached(answered)
			return err
		})
		return got
	}
	if got := reached(0); len(got) > 0 {
		t.Errorf("before any hostPort a pod reached %q", got)
	}

	addPod(t, n, node, "web", 18080)
	answer(t, filepath.Join(n.cfg.NetNSDir, "cni-web"), ":8080")
	if on := strings.TrimSpace(nodeSees(t, node, "cat /proc/sys/net/ipv4/conf/poddt2/route_localnet")); on != "1" {
		t.Fatalf("route_localnet of the bridge is %q after a hostPort: this test shows nothing any more", on)
	}
	if got := reached(18080); len(got) > 0 {
		t.Errorf("beside a pod with a hostPort a pod reached %q", got)
	}
	if said := call(t, node, "127.0.0.1:18080"); said != "10.204.0.1" {
		t.Errorf("localhost:hostPort on the node: the pod saw %q, want the bridge's 10.204.0.1", said)
	}

	// Without the rules all of it is reached, IPv6 excepted: there the kernel itself
	// takes nothing for ::1 that came from outside (RFC 4291, 2.5.3).
	inNetNS(t, node, func() error { return n.rules(n.cfg.PodCIDR).remove(t.Context()) })
	open := reached(0)
	for _, want := range []string{"TCP 127.0.0.1:", "UDP 127.0.0.1", "UDP 127.0.0.1, in VLAN 0"} {
		if !slices.ContainsFunc(open, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("without the rules a pod reached %q, want %q among it: this test shows nothing any more", open, want)
		}
	}
	t.Logf("without the rules a pod reached %q; IPv6 on the bridge: %t", open, services.IPv6())
	for range 2 { // again is no more
		inNetNS(t, node, func() error { return n.SetUp(t.Context()) })
		if got := reached(18080); len(got) > 0 {
			t.Errorf("with the rules back a pod reached %q", got)
		}
	}

	inNetNS(t, node, func() error {
		if _, err := n.Collect(t.Context(), nil, time.Now().Add(time.Second)); err != nil {
			return err
		}
		_, err := n.TearDown(t.Context())
		return err
	})
	left := nodeSees(t, node, "iptables-save 2>/dev/null | grep poddt2; nft list ruleset 2>/dev/null | grep poddt2")
	if strings.TrimSpace(left) != "" {
		t.Errorf("after TearDown there is left:\n%s", left)
	}
}
