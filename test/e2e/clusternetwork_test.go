package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/test/cluster"
)

// nodeReady waits until the Node's condition Ready is as said, with a message that has all of
// words.
func (m *member) nodeReady(status v1.ConditionStatus, words ...string) {
	m.Helper()
	m.eventually(fmt.Sprintf("Ready is %s %q", status, words), func(ctx context.Context) error {
		var n v1.Node
		if err := m.server.Client().Get(ctx, cluster.Object{"kind": "Node", "metadata": map[string]any{"name": m.podd.NodeName()}}, &n); err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type != v1.NodeReady {
				continue
			}
			if c.Status == status && holdsAll(c.Message, words) {
				return nil
			}
			return fmt.Errorf("it is %s: %s", c.Status, c.Message)
		}
		return errors.New("there is no such condition")
	})
}

// assigned waits for a Node and gives it a podCIDR, as the controller manager does.
func (m *member) assigned(cidr netip.Prefix) {
	m.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"podCIDR": cidr.String(), "podCIDRs": []string{cidr.String()}}})
	if err != nil {
		m.Fatal(err)
	}
	m.eventually("the Node has podCIDR "+cidr.String(), func(context.Context) error {
		_, err := m.says("patch", "node", m.podd.NodeName(), "-p", string(patch))
		return err
	})
}

// withoutNetwork is a member whose pods get their addresses from the cluster.
func withoutNetwork(t *testing.T) *member {
	m := joinWith(t, func(config map[string]any) { config["podCIDR"] = nil })
	t.Cleanup(func() { // the next test's node has its network from the start
		err := errors.Join(os.RemoveAll(filepath.Join(m.node.Root(), "cluster")), m.node.Containerd.WriteNetwork(context.Background()), m.node.Containerd.WaitReady(context.Background(), nil))
		if err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestPodsGetTheirAddressesFromTheNodesPodCIDR(t *testing.T) {
	m := withoutNetwork(t)
	m.nodeReady(v1.ConditionFalse, "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady")
	// What needs no pod network runs meanwhile: a control plane, for example.
	m.write("host.yaml", m.podOf("host", ": > /out/host; ${REST}", "hostNetwork: true"))
	m.ready("host")
	m.write("early.yaml", m.resting("early"))
	m.event("early", "NetworkNotReady", "no podCIDR yet")

	within := m.node.Subnet.Addr().As4()
	cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{within[0], within[1], 77, 0}), 24)
	m.assigned(cidr)
	m.nodeReady(v1.ConditionTrue)
	early := m.ready("early")
	m.bind(m.resting("web"))
	web := m.shown("web", "ready", isReady)
	for _, p := range []*v1.Pod{early, web} {
		if ip, err := netip.ParseAddr(p.Status.PodIP); err != nil || !cidr.Contains(ip) {
			t.Errorf("pod %s has address %q, want one of %s", p.Name, p.Status.PodIP, cidr)
		}
	}

	// The apiserver is not asked again.
	m.kill()
	if err := m.server.Stop(); err != nil {
		t.Fatal(err)
	}
	m.start()
	m.write("later.yaml", m.resting("later"))
	if ip, err := netip.ParseAddr(m.ready("later").Status.PodIP); err != nil || !cidr.Contains(ip) {
		t.Errorf("without an apiserver: a pod has address %s, want one of %s", ip, cidr)
	}
	if err := m.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	// A Node that is made anew, with another podCIDR.
	if _, err := m.says("delete", "node", m.podd.NodeName()); err != nil {
		t.Fatal(err)
	}
	other := netip.PrefixFrom(netip.AddrFrom4([4]byte{within[0], within[1], 78, 0}), 24)
	m.stop()
	m.start()
	m.assigned(other)
	m.nodeReady(v1.ConditionFalse, "pods of this node have addresses of another network", other.String(), "and it is taken up")
	if text := m.exec(m.ready("later"), "main", "sh", "-c", "ip route"); !strings.Contains(text, "default via "+cidr.Addr().Next().String()) {
		t.Errorf("meanwhile a pod's routes are %q", text)
	}
	m.remove("early.yaml", "later.yaml")
	m.server.Client().Delete(t.Context(), podNamed("web")) //nolint:errcheck // the cluster may have deleted it with its Node
	m.gone("web")
	m.nodeReady(v1.ConditionTrue)
	m.bind(m.resting("moved"))
	if ip, err := netip.ParseAddr(m.shown("moved", "ready", isReady).Status.PodIP); err != nil || !other.Contains(ip) {
		t.Errorf("after the move: a pod has address %s, want one of %s", ip, other)
	}
	m.delete("moved")
	m.gone("moved")
	m.remove("host.yaml")
}
