package cni

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"podd/cni/cnitest"
)

// attach gives a sandbox its network through libcni, as the runtime does.
func attach(t *testing.T, n *Network, id string, age time.Duration) {
	t.Helper()
	attachTo(t, n, id, "/run/netns/"+id, age)
}

func attachTo(t *testing.T, n *Network, id, netns string, age time.Duration) {
	t.Helper()
	list, _, err := n.load()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.cni.AddNetworkList(t.Context(), list, &libcni.RuntimeConf{ContainerID: id, NetNS: netns, IfName: "eth0"}); err != nil {
		t.Fatal(err)
	}
	old(t, filepath.Join(n.cfg.CacheDir, "results", n.cfg.Bridge+"-"+id+"-eth0"), age)
}

func lease(t *testing.T, n *Network, ip, id string, age time.Duration) string {
	t.Helper()
	path := filepath.Join(n.cfg.LeaseDir, n.cfg.Bridge, ip)
	write(t, path, id+"\r\neth0")
	old(t, path, age)
	return path
}

func old(t *testing.T, path string, age time.Duration) {
	t.Helper()
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
		t.Fatal(err)
	}
}

func TestCollectUndoesOnlyWhatNobodyHas(t *testing.T) {
	plugins := cnitest.New(t, "bridge", "host-local", "portmap")
	for _, p := range []string{"bridge", "portmap"} {
		plugins.Answer(p, "ADD", `{"cniVersion":"1.0.0","ips":[{"address":"10.202.0.2/24"}]}`)
	}
	n := aNetwork(t, plugins)
	if err := n.cfg.writeConf("nftables", n.cfg.PodCIDR); err != nil {
		t.Fatal(err)
	}
	attach(t, n, "alive", time.Minute)
	attach(t, n, "dead", time.Minute)
	attach(t, n, "young", 0)
	attach(t, n, "beforeboot", 24*365*time.Hour)
	// One of this boot, before somebody set the clock right.
	here := filepath.Join(t.TempDir(), "netns")
	write(t, here, "")
	attachTo(t, n, "slowclock", here, 24*365*time.Hour)
	kept := []string{lease(t, n, "10.202.0.2", "alive", time.Minute), lease(t, n, "10.202.0.4", "young", 0)}
	write(t, filepath.Join(n.cfg.LeaseDir, n.cfg.Bridge, "last_reserved_ip.0"), "10.202.0.4")
	lost := lease(t, n, "10.202.0.3", "dead", time.Minute)
	orphan := lease(t, n, "10.202.0.5", "nobody", time.Minute)
	before := len(plugins.Calls())

	got, err := n.Collect(t.Context(), []string{"alive", "another"}, time.Now().Add(-30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	// These plugins remove no lease, so both lost ones are left to Collect.
	if want := (Collected{Attachments: 3, Leases: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	var asked []string
	for _, c := range plugins.Calls()[before:] {
		asked = append(asked, c.Command+" "+c.Plugin+" "+c.ContainerID)
		if !strings.Contains(string(c.Config), `"name":"poddt0"`) {
			t.Errorf("DEL without the network's configuration: %s", c.Config)
		}
	}
	if want := []string{"DEL portmap dead", "DEL bridge dead", "DEL portmap slowclock", "DEL bridge slowclock"}; !slices.Equal(asked, want) {
		t.Errorf("plugins were asked %v, want %v", asked, want)
	}
	for _, path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("lease of a sandbox that lives: %v", err)
		}
	}
	for _, path := range []string{lost, orphan} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("lease %s is still there", path)
		}
	}
	if again, err := n.Collect(t.Context(), []string{"alive"}, time.Now().Add(-30*time.Second)); err != nil || again.Any() {
		t.Errorf("the second time: got %+v, %v, want nothing", again, err)
	}
}

func TestCollectGoesOnAfterAPluginFailed(t *testing.T) {
	plugins := cnitest.New(t, "bridge", "host-local", "portmap")
	for _, p := range []string{"bridge", "portmap"} {
		plugins.Answer(p, "ADD", `{"cniVersion":"1.0.0"}`)
	}
	n := aNetwork(t, plugins)
	if err := n.cfg.writeConf("nftables", n.cfg.PodCIDR); err != nil {
		t.Fatal(err)
	}
	attach(t, n, "dead", time.Minute)
	orphan := lease(t, n, "10.202.0.5", "nobody", time.Minute)
	plugins.Fail("portmap", "DEL", 11, "locked")
	got, err := n.Collect(t.Context(), nil, time.Now().Add(-time.Second))
	if err == nil || !strings.Contains(err.Error(), "lost sandbox dead") || !strings.Contains(err.Error(), "locked") {
		t.Errorf("got %v, want the sandbox and the plugin's words", err)
	}
	if _, err := os.Stat(orphan); !os.IsNotExist(err) || got.Leases != 1 {
		t.Errorf("the lease was not collected: %+v", got)
	}
}

func TestCollectLeavesOtherNetworksAlone(t *testing.T) {
	plugins := cnitest.New(t, "bridge", "host-local", "portmap")
	plugins.Answer("bridge", "ADD", `{"cniVersion":"1.0.0"}`)
	n := aNetwork(t, plugins)
	write(t, filepath.Join(n.cfg.ConfDir, "10-other.conflist"), `{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"bridge"}]}`)
	list, _, err := n.load()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.cni.AddNetworkList(t.Context(), list, &libcni.RuntimeConf{ContainerID: "x", NetNS: "/n", IfName: "eth0"}); err != nil {
		t.Fatal(err)
	}
	old(t, filepath.Join(n.cfg.CacheDir, "results/other-x-eth0"), time.Minute)
	if got, err := n.Collect(t.Context(), nil, time.Now()); err != nil || got.Any() {
		t.Errorf("got %+v, %v, want nothing", got, err)
	}
}
