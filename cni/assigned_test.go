package cni

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// awaiting is a network whose pod CIDR a cluster gives, in a network namespace of its own.
func awaiting(t *testing.T) (n *Network, node string) {
	t.Helper()
	if findTool("nft") == "" {
		t.Skip("needs nft")
	}
	dir := t.TempDir()
	node = filepath.Join(dir, "node")
	newNetNS(t, node)
	n, err := New(Config{
		Bridge: "poddt3", BinDirs: []string{dir}, ConfDir: filepath.Join(dir, "net.d"), LeaseDir: filepath.Join(dir, "leases"),
		CacheDir: filepath.Join(dir, "cache"), AssignedFile: filepath.Join(dir, "cluster/pod-cidr"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n, node
}

// network returns what the runtime reads, "" for nothing, and what is masqueraded.
func network(t *testing.T, n *Network, node string) (conf, masqueraded string) {
	t.Helper()
	text, err := os.ReadFile(n.cfg.confFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text), nodeSees(t, node, "nft list ruleset")
}

func TestPodCIDROfAClusterMakesTheNetwork(t *testing.T) {
	n, node := awaiting(t)
	do := func(f func() error) { t.Helper(); inNetNS(t, node, f) }
	if err := n.AwaitAssignment(); err != nil {
		t.Fatal(err)
	}
	do(func() error { return n.SetUp(t.Context()) })
	if conf, rules := network(t, n, node); conf != "" || rules != "" {
		t.Errorf("before the assignment: the runtime reads %q, the rules are %q", conf, rules)
	}
	if err := n.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "no podCIDR yet") {
		t.Errorf("before the assignment: Ready is %v", err)
	}
	do(func() error { return n.Assign(t.Context(), prefixes("fd00:1::/64", "10.207.1.0/24")) })
	if conf, rules := network(t, n, node); !strings.Contains(conf, `"10.207.1.0/24"`) || !strings.Contains(rules, "10.207.1.0/24") {
		t.Errorf("after the assignment: the runtime reads %q, the rules are %q", conf, rules)
	}

	// Another process, before the cluster has answered: the runtime after a boot, for example.
	again, err := New(n.cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(n.cfg.ConfDir), again.AwaitAssignment()); err != nil {
		t.Fatal(err)
	}
	do(func() error { return again.SetUp(t.Context()) })
	if conf, _ := network(t, n, node); !strings.Contains(conf, `"10.207.1.0/24"`) {
		t.Errorf("after a boot: the runtime reads %q", conf)
	}
}

func TestAnotherPodCIDRWaitsForPodsWithAddresses(t *testing.T) {
	n, node := awaiting(t)
	assign := func(cidr string) (err error) {
		inNetNS(t, node, func() error { err = n.Assign(t.Context(), prefixes(cidr)); return nil })
		return err
	}
	if err := assign("10.207.1.0/24"); err != nil {
		t.Fatal(err)
	}
	lease := filepath.Join(n.cfg.LeaseDir, n.cfg.Bridge, "10.207.1.7")
	write(t, lease, "a-pod\r\neth0")
	write(t, filepath.Join(filepath.Dir(lease), "last_reserved_ip.0"), "10.207.1.7")
	err := assign("10.207.2.0/24")
	if !errors.Is(err, ErrAddressesInUse) || !strings.Contains(err.Error(), "10.207.2.0/24") || !strings.Contains(err.Error(), "10.207.1.7") {
		t.Errorf("with a pod: got %v", err)
	}
	if conf, rules := network(t, n, node); !strings.Contains(conf, "10.207.1.0/24") || !strings.Contains(rules, "10.207.1.0/24") {
		t.Errorf("with a pod: the runtime reads %q, the rules are %q", conf, rules)
	}
	// One that has room for the pod's address does it no harm.
	if err := assign("10.207.0.0/16"); err != nil {
		t.Errorf("a wider one: %v", err)
	}
	if err := os.Remove(lease); err != nil {
		t.Fatal(err)
	}
	if err := assign("10.207.2.0/24"); err != nil {
		t.Errorf("without a pod: %v", err)
	}
	if conf, rules := network(t, n, node); !strings.Contains(conf, "10.207.2.0/24") || strings.Contains(rules, "10.207.0.0/16") {
		t.Errorf("without a pod: the runtime reads %q, the rules are %q", conf, rules)
	}
}

func TestJoiningAClusterKeepsTheNetworkOfPodsThatRun(t *testing.T) {
	n, node := awaiting(t)
	inNetNS(t, node, func() error { return n.SetUp(t.Context()) })
	if conf, _ := network(t, n, node); !strings.Contains(conf, DefaultPodCIDR) {
		t.Fatalf("without a cluster: the runtime reads %q", conf)
	}
	lease := filepath.Join(n.cfg.LeaseDir, n.cfg.Bridge, "10.88.0.7")
	write(t, lease, "a-pod\r\neth0")
	if err := n.AwaitAssignment(); err != nil {
		t.Fatal(err)
	}
	inNetNS(t, node, func() error { return n.SetUp(t.Context()) })
	if conf, _ := network(t, n, node); !strings.Contains(conf, DefaultPodCIDR) {
		t.Errorf("with a pod: the runtime reads %q, and could not release its address", conf)
	}
	if err := os.Remove(lease); err != nil {
		t.Fatal(err)
	}
	inNetNS(t, node, func() error { return n.SetUp(t.Context()) })
	if conf, _ := network(t, n, node); conf != "" {
		t.Errorf("without pods: the runtime still reads %q", conf)
	}
}

func TestLeavingAClusterKeepsTheNetworkOfPodsThatRun(t *testing.T) {
	n, node := awaiting(t)
	inNetNS(t, node, func() error { return n.Assign(t.Context(), prefixes("10.207.1.0/24")) })
	lease := filepath.Join(n.cfg.LeaseDir, n.cfg.Bridge, "10.207.1.7")
	write(t, lease, "a-pod\r\neth0")
	if err := os.Remove(n.cfg.AssignedFile); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ with, want, not string }{{"with a pod", "10.207.1.0/24", DefaultPodCIDR}, {"without pods", DefaultPodCIDR, "10.207.1.0/24"}} {
		inNetNS(t, node, func() error { return n.SetUp(t.Context()) })
		conf, rules := network(t, n, node)
		if !strings.Contains(conf, step.want) || !strings.Contains(rules, step.want) || strings.Contains(conf+rules, step.not) {
			t.Errorf("%s: the runtime reads %q, the rules are %q", step.with, conf, rules)
		}
		if err := os.RemoveAll(lease); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAssignmentsThatTheNetworkCannotHave(t *testing.T) {
	n, node := awaiting(t)
	assign := func(cidrs ...string) (err error) {
		inNetNS(t, node, func() error { err = n.Assign(t.Context(), prefixes(cidrs...)); return nil })
		return err
	}
	for want, cidr := range map[string]string{"IPv4 only": "fd00:1::/64", "no room": "10.0.0.0/32"} {
		if err := assign(cidr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", cidr, err, want)
		}
	}
	// An administrator's own network has what addresses it likes.
	write(t, filepath.Join(n.cfg.ConfDir, "10-own.conflist"), `{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"portmap"}]}`)
	if err := assign("fd00:1::/64"); err != nil {
		t.Errorf("beside an administrator's network: %v", err)
	}
	if err := os.RemoveAll(n.cfg.ConfDir); err != nil {
		t.Fatal(err)
	}
	// A damaged record is none.
	write(t, n.cfg.AssignedFile, strings.Repeat("x", 1<<20))
	inNetNS(t, node, func() error { return n.SetUp(t.Context()) })
	if conf, _ := network(t, n, node); conf != "" {
		t.Errorf("with a damaged record the runtime reads %q", conf)
	}
	if err := assign("10.207.3.9/24"); err != nil {
		t.Errorf("after a damaged record: %v", err)
	}
	if conf, _ := network(t, n, node); !strings.Contains(conf, "10.207.3.0/24") {
		t.Errorf("after a damaged record the runtime reads %q", conf)
	}

	n.cfg.PodCIDR = netip.MustParsePrefix("10.202.0.0/24")
	if err := assign("10.207.1.0/24"); err == nil || !strings.Contains(err.Error(), "--pod-cidr") {
		t.Errorf("with a configured one: got %v", err)
	}
}
