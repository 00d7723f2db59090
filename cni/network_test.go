package cni

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podd/cni/cnitest"
	"podd/internal/pod"
)

func aConfig(t *testing.T, plugins *cnitest.Plugins) Config {
	t.Helper()
	dir := t.TempDir()
	return Config{
		Bridge: "poddt0", PodCIDR: netip.MustParsePrefix("10.202.0.0/24"), BinDirs: []string{plugins.Dir},
		ConfDir: filepath.Join(dir, "net.d"), LeaseDir: filepath.Join(dir, "leases"),
		CacheDir: filepath.Join(dir, "cache"), NetNSDir: filepath.Join(dir, "netns"),
	}
}

func aNetwork(t *testing.T, plugins *cnitest.Plugins) *Network {
	t.Helper()
	n, err := New(aConfig(t, plugins), nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestBadConfigIsReportedInASentence(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"long bridge":     {func(c *Config) { c.Bridge = "a-bridge-with-a-long-name" }, "1 to 15"},
		"slash in bridge": {func(c *Config) { c.Bridge = "a/b" }, "1 to 15"},
		"IPv6":            {func(c *Config) { c.PodCIDR = netip.MustParsePrefix("fd00::/64") }, "of your own"},
		"too small":       {func(c *Config) { c.PodCIDR = netip.MustParsePrefix("10.0.0.0/31") }, "smallest is a /30"},
		"host bits":       {func(c *Config) { c.PodCIDR = netip.MustParsePrefix("10.0.0.5/24") }, "did you mean 10.0.0.0/24?"},
		"relative conf":   {func(c *Config) { c.ConfDir = "net.d" }, "absolute"},
		"relative leases": {func(c *Config) { c.LeaseDir = "" }, "absolute"},
	} {
		cfg := aConfig(t, cnitest.New(t))
		c.change(&cfg)
		if _, err := New(cfg, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, c.want)
		}
	}
}

func TestReadyNamesWhatIsMissing(t *testing.T) {
	plugins := cnitest.New(t, "bridge", "host-local", "portmap")
	n := aNetwork(t, plugins)
	expect := func(when, want string) {
		t.Helper()
		err := n.Ready(t.Context())
		if want == "" {
			if err != nil {
				t.Errorf("%s: got %v, want nil", when, err)
			}
			return
		}
		if !errors.Is(err, pod.ErrNetworkNotReady) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want ErrNetworkNotReady with %q", when, err, want)
		}
	}
	expect("no directory", "no CNI configuration in "+n.cfg.ConfDir)
	if err := n.cfg.writeConf("nftables", n.cfg.PodCIDR); err != nil {
		t.Fatal(err)
	}
	expect("default network", "")
	if calls := plugins.Calls(); len(calls) != 0 {
		t.Errorf("the default network's readiness ran plugins: %v", calls)
	}

	os.Remove(filepath.Join(plugins.Dir, "host-local"))
	expect("no IPAM plugin", `"host-local", which is not in `+plugins.Dir)

	// An administrator's configuration comes first and is the one that counts.
	admin := filepath.Join(n.cfg.ConfDir, "10-own.conflist")
	write(t, admin, `{"cniVersion":"1.1.0","name":"own","plugins":[{"type":"portmap"}]}`)
	expect("a network of 1.1.0", "")
	if calls := plugins.Calls(); len(calls) != 1 || calls[0].Command != "STATUS" {
		t.Errorf("got calls %v, want one STATUS", calls)
	}
	plugins.Fail("portmap", "STATUS", 50, "no route to the controller")
	expect("the plugin is not ready", "no route to the controller")

	write(t, admin, `{"name":`)
	expect("broken JSON", admin)
	os.Remove(admin)
	write(t, filepath.Join(n.cfg.ConfDir, "10-old.conf"), `{"cniVersion":"0.4.0","name":"old","type":"bridge"}`)
	expect("a single plugin's file", "")
}

// tools plays nft and iptables and records what it was told.
type tools struct {
	has   []string
	calls []string
	// out answers a command line that begins like the key.
	out map[string]string
	bad map[string]bool
}

func (f *tools) find(tool string) string {
	for _, has := range f.has {
		if has == tool {
			return "/sbin/" + tool
		}
	}
	return ""
}

func (f *tools) run(_ context.Context, stdin, path string, args ...string) (string, error) {
	line := filepath.Base(path) + " " + strings.Join(args, " ")
	f.calls = append(f.calls, line+stdin)
	for prefix := range f.bad {
		if strings.HasPrefix(line, prefix) {
			return "", errors.New("no such rule")
		}
	}
	for prefix, out := range f.out {
		if strings.HasPrefix(line, prefix) {
			return out, nil
		}
	}
	return "", nil
}

func rulesWith(f *tools) *rules {
	r := newRules("podd0", netip.MustParsePrefix("10.88.0.0/16"))
	r.find, r.run = f.find, f.run
	return r
}

func TestRulesPreferNftablesAndTouchOnlyWhatBlocks(t *testing.T) {
	const accept = "-P FORWARD ACCEPT\n"
	for name, c := range map[string]struct {
		tools  tools
		want   []string
		no     []string
		remark string
	}{
		"nft alone": {
			tools: tools{has: []string{"nft"}},
			want: []string{"delete table ip podd_podd0", "hook prerouting priority raw", `iifname "podd0" ip daddr 127.0.0.0/8 counter drop`,
				`iifname "podd0" ip saddr 127.0.0.0/8 counter drop`, "ip saddr 10.88.0.0/16 ip daddr != { 10.88.0.0/16, 224.0.0.0/4 } counter masquerade"},
			no: []string{"iptables"},
		},
		"both, nothing filters": {
			tools: tools{has: []string{"nft", "iptables"}, out: map[string]string{"iptables -w -S FORWARD": accept}},
			want:  []string{"nft -f -"},
			no:    []string{"-I FORWARD", "MASQUERADE"},
		},
		"Docker dropped forwarding": {
			tools: tools{
				has: []string{"nft", "iptables"}, out: map[string]string{"iptables -w -S FORWARD": "-P FORWARD DROP\n"},
				bad: map[string]bool{"iptables -w -C": true},
			},
			want: []string{
				"iptables -w -I FORWARD -i podd0 -s 10.88.0.0/16 -m comment --comment podd podd0 -j ACCEPT",
				"iptables -w -I FORWARD -o podd0 -d 10.88.0.0/16 -m conntrack --ctstate RELATED,ESTABLISHED,DNAT",
			},
		},
		"the rules are there": {
			tools: tools{has: []string{"nft", "iptables"}, out: map[string]string{"iptables -w -S FORWARD": "-P FORWARD DROP\n"}},
			want:  []string{"iptables -w -C FORWARD"},
			no:    []string{"-I FORWARD"},
		},
		"iptables alone": {
			tools: tools{has: []string{"iptables"}, bad: map[string]bool{"iptables -w -t nat -C": true, "iptables -w -t raw -C": true}},
			want: []string{"iptables -w -t raw -I PREROUTING -i podd0 -d 127.0.0.0/8 -m comment --comment podd podd0 -j DROP",
				"iptables -w -t raw -I PREROUTING -i podd0 -s 127.0.0.0/8 -m comment --comment podd podd0 -j DROP",
				"iptables -w -t nat -A POSTROUTING -s 10.88.0.0/16 ! -d 10.88.0.0/16 -m comment --comment podd podd0 -j MASQUERADE"},
			no: []string{"nft"},
		},
		"a firewall of nftables": {
			tools: tools{has: []string{"nft"}, out: map[string]string{
				"nft -j list chains": `{"nftables":[{"metainfo":{}},{"chain":{"family":"inet","table":"firewalld","name":"filter_FORWARD","hook":"forward","policy":"drop"}}]}`,
			}},
			remark: "nft insert rule inet firewalld filter_FORWARD ip saddr 10.88.0.0/16 accept",
		},
	} {
		remark, err := rulesWith(&c.tools).apply(t.Context())
		if err != nil || !strings.Contains(remark, c.remark) || (c.remark == "") != (remark == "") {
			t.Errorf("%s: got %q, %v, want %q", name, remark, err, c.remark)
		}
		all := strings.Join(c.tools.calls, "\n")
		for _, want := range c.want {
			if !strings.Contains(all, want) {
				t.Errorf("%s: %q was not run; got\n%s", name, want, all)
			}
		}
		for _, no := range c.no {
			if strings.Contains(all, no) {
				t.Errorf("%s: %q was run; got\n%s", name, no, all)
			}
		}
	}
	if _, err := rulesWith(&tools{}).backend(); err == nil || !strings.Contains(err.Error(), "apt-get install nftables") {
		t.Errorf("no tool: got %v, want a remedy", err)
	}
}

func TestForwardChainOfOursAloneFiltersNothing(t *testing.T) {
	for listing, want := range map[string]bool{
		"": false, "-P FORWARD ACCEPT\n": false, "-P FORWARD DROP\n": true,
		"-P FORWARD ACCEPT\n-A FORWARD -j DOCKER-USER\n":                                         true,
		"-P FORWARD ACCEPT\n-A FORWARD -i podd0 -m comment --comment \"podd podd0\" -j ACCEPT\n": false,
	} {
		if got := mayDrop(listing); got != want {
			t.Errorf("%q: got %t, want %t", listing, got, want)
		}
	}
}
