package e2e

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/cni/cnitest"
)

// TestAPodDoesNotReachTheNodesLoopback: portmap lets 127/8 through the bridge
// from the first hostPort on, and a container with containerd's default
// capabilities, CAP_NET_RAW among them, was answered by every service of the
// node's loopback: CVE-2020-8558.
func TestAPodDoesNotReachTheNodesLoopback(t *testing.T) {
	e := begin(t)
	local := "/proc/sys/net/ipv4/conf/" + e.node.Bridge + "/route_localnet"
	text := replaced(e, e.resting("hostile"), "mountPath: /out}]", "mountPath: /out}, {name: knock, mountPath: /knock, readOnly: true}]")
	e.write("hostile.yaml", text+"  - name: knock\n    hostPath: {path: "+knock+", type: File}\n")
	p := e.ready("hostile")
	// An earlier test of this node may have had a hostPort.
	if err := os.WriteFile(local, []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
	services, err := cnitest.Serve(t, e.node.Bridge, netip.MustParseAddr(bridgeAddress(e)))
	if err != nil {
		t.Fatal(err)
	}
	if got := e.reached(services, p, 0); len(got) > 0 {
		t.Errorf("before any hostPort a pod reached %q", got)
	}

	e.apply("hostport.yaml")
	e.ready("hostport")
	if on, err := os.ReadFile(local); err != nil || strings.TrimSpace(string(on)) != "1" {
		t.Fatalf("route_localnet of the bridge is %q after a hostPort (%v): this test shows nothing any more", on, err)
	}
	port := e.node.Port + 5
	for _, when := range []string{"beside a pod with a hostPort", "after a restart of podd", "after a restart of podd that a reload of the firewall preceded"} {
		if got := e.reached(services, p, uint16(port)); len(got) > 0 {
			t.Errorf("%s a pod reached %q", when, got)
		}
		if body, err := httpGet(t.Context(), fmt.Sprintf("127.0.0.1:%d", port)); err != nil || !strings.Contains(body, "It runs") {
			t.Errorf("%s localhost:hostPort on the node: got %q, %v", when, body, err)
		}
		e.stop()
		if when == "after a restart of podd" {
			if out, err := exec.Command("nft", "delete", "table", "ip", "podd_"+e.node.Bridge).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got := e.reached(services, p, 0); len(got) == 0 {
				t.Error("without podd's rules a pod reached nothing: this test shows nothing any more")
			} else {
				t.Logf("without podd's rules a pod reached %q; IPv6 on the bridge: %t", got, services.IPv6())
			}
		}
		e.start()
		e.ready("hostile")
	}
}

// reached is what of the services a container with a raw socket got through to.
func (e *env) reached(services *cnitest.Services, p *v1.Pod, hostPort uint16) []string {
	e.Helper()
	mac, err := net.ParseMAC(strings.TrimSpace(e.exec(p, "main", "cat", "/sys/class/net/eth0/address")))
	if err != nil {
		e.Fatal(err)
	}
	command := []string{"/knock", "eth0"}
	for _, frame := range services.Frames(mac, netip.MustParseAddr(p.Status.PodIP), hostPort) {
		command = append(command, hex.EncodeToString(frame))
	}
	var answered []netip.AddrPort
	for line := range strings.Lines(e.exec(p, "main", command...)) {
		who, err := netip.ParseAddrPort(strings.TrimSpace(line))
		if err != nil {
			e.Fatal(err)
		}
		answered = append(answered, who)
	}
	got, err := services.Reached(answered)
	if err != nil {
		e.Fatal(err)
	}
	return got
}
