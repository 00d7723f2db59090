package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// rules are the packet filter rules that all pods share: the node's loopback is
// closed to them, packets that leave the pod CIDR get the node's address, and
// packets of pods may be forwarded. They go in by nftables, atomically, or by
// iptables where there is no nft.
//
// Loopback has to be closed. For localhost:hostPort portmap sets route_localnet on the
// bridge. From then on the kernel takes packets for 127/8 from the bridge, which a pod
// with CAP_NET_RAW can make (CVE-2020-8558), and packets from 127/8 that no answer can
// follow. The rules come before any DNAT, hence in raw. IPv6 has no such switch: the
// kernel drops what comes for or from ::1 over a wire (RFC 4291, 2.5.3).
type rules struct {
	bridge string
	cidr   netip.Prefix
	// find returns the path of a tool, or "".
	find func(tool string) string
	run  func(ctx context.Context, stdin, path string, args ...string) (string, error)
}

func newRules(bridge string, cidr netip.Prefix) *rules {
	return &rules{bridge: bridge, cidr: cidr, find: findTool, run: run}
}

// backend is what portmap and these rules use.
func (r *rules) backend() (string, error) {
	switch {
	case r.find("nft") != "":
		return "nftables", nil
	case r.find("iptables") != "":
		return "iptables", nil
	default:
		return "", errors.New("neither nft nor iptables is installed, and pods need one of them to reach other machines and to have hostPorts; on Debian or Ubuntu: apt-get install nftables")
	}
}

func (r *rules) table() string { return "podd_" + r.bridge }

// apply makes the rules, replacing older ones of the same bridge. remark is a
// sentence about something else on the machine that may block pods.
func (r *rules) apply(ctx context.Context) (remark string, err error) {
	backend, err := r.backend()
	if err != nil {
		return "", err
	}
	if backend == "nftables" {
		_, err = r.run(ctx, r.script(), r.find("nft"), "-f", "-")
	} else {
		err = r.ensureIPTables(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("make the rules of pod CIDR %s (masquerading, no way to the node's loopback): %w", r.cidr, err)
	}
	if err := r.ensureForwardAccept(ctx); err != nil {
		return "", fmt.Errorf("allow pods' packets to be forwarded: %w", err)
	}
	return r.blockingChain(ctx), nil
}

// script replaces our table in one transaction. Multicast keeps its source.
func (r *rules) script() string {
	return fmt.Sprintf(`add table ip %[1]s
delete table ip %[1]s
table ip %[1]s {
	chain prerouting {
		type filter hook prerouting priority raw; policy accept;
		iifname "%[3]s" ip daddr 127.0.0.0/8 counter drop comment "podd: the node's loopback is not for pods"
		iifname "%[3]s" ip saddr 127.0.0.0/8 counter drop comment "podd: nor may a pod speak as the node itself"
	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %[2]s ip daddr != { %[2]s, 224.0.0.0/4 } counter masquerade comment "podd: pods leave with the node's address"
	}
}
`, r.table(), r.cidr, r.bridge)
}

func (r *rules) comment() []string { return []string{"-m", "comment", "--comment", "podd " + r.bridge} }

func (r *rules) masquerade() []string {
	// Multicast needs a second match, which iptables lacks for one rule; nobody
	// forwards multicast from pods without a router that would also need its own.
	return slices.Concat([]string{"-s", r.cidr.String(), "!", "-d", r.cidr.String()}, r.comment(), []string{"-j", "MASQUERADE"})
}

// loopbackRules close the node's loopback to pods; see rules.
func (r *rules) loopbackRules() [][]string {
	return [][]string{
		slices.Concat([]string{"-i", r.bridge, "-d", "127.0.0.0/8"}, r.comment(), []string{"-j", "DROP"}),
		slices.Concat([]string{"-i", r.bridge, "-s", "127.0.0.0/8"}, r.comment(), []string{"-j", "DROP"}),
	}
}

var (
	rawPrerouting  = []string{"-t", "raw", "PREROUTING"}
	natPostrouting = []string{"-t", "nat", "POSTROUTING"}
)

// ensureIPTables is script for iptables.
func (r *rules) ensureIPTables(ctx context.Context) error {
	for _, rule := range r.loopbackRules() {
		if err := r.ensure(ctx, "-I", rawPrerouting, rule); err != nil {
			return err
		}
	}
	return r.ensure(ctx, "-A", natPostrouting, r.masquerade())
}

// forwardRules: what pods send may pass; towards pods only what answers them, or
// what came through a hostPort (DNAT).
func (r *rules) forwardRules() [][]string {
	return [][]string{
		slices.Concat([]string{"-i", r.bridge, "-s", r.cidr.String()}, r.comment(), []string{"-j", "ACCEPT"}),
		slices.Concat([]string{"-o", r.bridge, "-d", r.cidr.String(), "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED,DNAT"},
			r.comment(), []string{"-j", "ACCEPT"}),
	}
}

// ensureForwardAccept adds the forward rules only if the FORWARD chain of iptables could drop
// packets: by a policy of DROP (Docker sets it) or by rules of others (ufw and friends).
func (r *rules) ensureForwardAccept(ctx context.Context) error {
	if r.find("iptables") == "" {
		return nil
	}
	out, err := r.run(ctx, "", r.find("iptables"), "-w", "-S", "FORWARD")
	if err != nil || !mayDrop(out) {
		return err
	}
	for _, rule := range r.forwardRules() {
		if err := r.ensure(ctx, "-I", []string{"FORWARD"}, rule); err != nil {
			return err
		}
	}
	return nil
}

// mayDrop says whether anything in the output of "iptables -S FORWARD" could drop packets.
func mayDrop(listing string) bool {
	for line := range strings.Lines(listing) {
		line = strings.TrimSpace(line)
		if line != "" && line != "-P FORWARD ACCEPT" && !strings.Contains(line, `--comment "podd `) {
			return true
		}
	}
	return false
}

// ensure adds a rule (-A or -I) unless it exists. where is [-t table] chain.
func (r *rules) ensure(ctx context.Context, how string, where, rule []string) error {
	if _, err := r.iptables(ctx, "-C", where, rule); err == nil {
		return nil
	}
	_, err := r.iptables(ctx, how, where, rule)
	return err
}

func (r *rules) iptables(ctx context.Context, how string, where, rule []string) (string, error) {
	chain := where[len(where)-1]
	args := slices.Concat([]string{"-w"}, where[:len(where)-1], []string{how, chain}, rule)
	return r.run(ctx, "", r.find("iptables"), args...)
}

// remove removes our rules; none there is no error.
func (r *rules) remove(ctx context.Context) error {
	var errs []error
	if nft := r.find("nft"); nft != "" {
		t := r.table()
		if _, err := r.run(ctx, fmt.Sprintf("add table ip %s\ndelete table ip %s\n", t, t), nft, "-f", "-"); err != nil {
			errs = append(errs, fmt.Errorf("remove table %s: %w", t, err))
		}
		r.removePortmap(ctx, nft)
	}
	if r.find("iptables") != "" {
		r.removeCIDRRules(ctx)
		for _, rule := range r.loopbackRules() {
			r.removeAll(ctx, rawPrerouting, rule)
		}
	}
	return errors.Join(errs...)
}

// removeCIDRRules removes the rules of iptables that name the pod CIDR, if there are any.
// Those of nftables are in a table of the bridge's name, and replaced with it.
func (r *rules) removeCIDRRules(ctx context.Context) {
	if r.find("iptables") == "" || !r.cidr.IsValid() {
		return
	}
	for _, rule := range r.forwardRules() {
		r.removeAll(ctx, []string{"FORWARD"}, rule)
	}
	r.removeAll(ctx, natPostrouting, r.masquerade())
}

// removePortmap removes the tables that portmap never removes, once they hold no hostPort
// rules. Another CNI user's rules would be in the same tables.
func (r *rules) removePortmap(ctx context.Context, nft string) {
	for _, family := range []string{"ip", "ip6"} {
		out, err := r.run(ctx, "", nft, "list", "table", family, "cni_hostport")
		if err == nil && !strings.Contains(out, "dnat to") {
			_, _ = r.run(ctx, "", nft, "delete", "table", family, "cni_hostport") // somebody was quicker, then
		}
	}
}

// removeAll deletes a rule until no copy of it is left.
func (r *rules) removeAll(ctx context.Context, where, rule []string) {
	for ctx.Err() == nil {
		if _, err := r.iptables(ctx, "-D", where, rule); err != nil {
			return
		}
	}
}

// blockingChain describes a forward chain of nftables proper (firewalld, a hand-written
// ruleset) that drops by policy: an accept elsewhere does not help against it, and its
// rules are not ours to change. It returns "" if there is none.
func (r *rules) blockingChain(ctx context.Context) string {
	if r.find("nft") == "" {
		return ""
	}
	out, err := r.run(ctx, "", r.find("nft"), "-j", "list", "chains")
	if err != nil {
		return "" // an old nft without JSON
	}
	var listing struct {
		Nftables []struct {
			Chain *struct{ Family, Table, Name, Hook, Policy string } `json:"chain"`
		} `json:"nftables"`
	}
	if json.Unmarshal([]byte(out), &listing) != nil {
		return ""
	}
	for _, o := range listing.Nftables {
		c := o.Chain
		// "ip filter FORWARD" is iptables', which ensureForwardAccept has seen to.
		if c == nil || c.Hook != "forward" || c.Policy != "drop" || (c.Family == "ip" && c.Table == "filter" && c.Name == "FORWARD") || c.Family == "ip6" {
			continue
		}
		return fmt.Sprintf("chain %s of table %s %s drops forwarded packets; allow %s there: nft insert rule %s %s %s ip saddr %s accept",
			c.Name, c.Family, c.Table, r.cidr, c.Family, c.Table, c.Name, r.cidr)
	}
	return ""
}

// findTool looks in PATH and in the sbin directories, which a user's PATH and a
// service's may lack.
func findTool(tool string) string {
	if path, err := exec.LookPath(tool); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, tool)); err == nil {
			return path
		}
	}
	return ""
}

// run executes a tool and returns what it printed; its complaint is the error.
func run(ctx context.Context, stdin, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(path), strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}
