package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// bridge is the network's bridge as the machine has it. podd makes it, before the plugin
// would, and writes its own name on it (the interface's alias). A bridge without that
// name belongs to somebody else.
type bridge struct {
	// exists: there is an interface of that name.
	exists bool
	// kind is "bridge" for one; alias is what is written on it.
	kind, alias string
}

// maxAlias is the kernel's limit for an alias (IFALIASZ, with the final zero).
const maxAlias = 255

// bridgeAlias is the alias of podd's own bridge.
func (n *Network) bridgeAlias() string {
	alias := "podd " + n.cfg.Owner
	return alias[:min(len(alias), maxAlias)]
}

// inspectBridge queries the kernel for the bridge.
func (n *Network) inspectBridge(ctx context.Context) (b bridge, err error) {
	if _, err := net.InterfaceByName(n.cfg.Bridge); err != nil {
		return b, nil
	}
	ip := findTool("ip")
	if ip == "" {
		return b, errNoIP
	}
	out, err := run(ctx, "", ip, "-json", "-details", "link", "show", "dev", n.cfg.Bridge)
	if err != nil {
		return b, fmt.Errorf("inspect bridge %s: %w", n.cfg.Bridge, err)
	}
	var links []struct {
		Alias string `json:"ifalias"`
		Info  struct {
			Kind string `json:"info_kind"`
		} `json:"linkinfo"`
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		return b, fmt.Errorf("inspect bridge %s: ip says %q", n.cfg.Bridge, out)
	}
	return bridge{exists: true, kind: links[0].Info.Kind, alias: links[0].Alias}, nil
}

var errNoIP = errors.New("the command ip is not installed, without which podd does not know its bridge from others'; on Debian or Ubuntu: apt-get install iproute2")

// ensureBridge creates the bridge, or adopts an existing one if that does no harm: the
// plugin removes every address from it except for the pod CIDR's.
func (n *Network) ensureBridge(ctx context.Context, cidr netip.Prefix) error {
	b, err := n.inspectBridge(ctx)
	if err != nil {
		return err
	}
	if !b.exists {
		ip := findTool("ip")
		if ip == "" {
			return errNoIP
		}
		script := fmt.Sprintf("link add name %[1]s type bridge\nlink set dev %[1]s alias \"%[2]s\"\n", n.cfg.Bridge, n.bridgeAlias())
		if _, err := run(ctx, script, ip, "-batch", "-"); err != nil {
			return fmt.Errorf("make bridge %s: %w", n.cfg.Bridge, err)
		}
		return nil
	}
	switch {
	case b.alias == n.bridgeAlias():
		return nil
	case n.isOtherPodds(b):
		return fmt.Errorf("bridge %s belongs to another podd (%q); each needs a --bridge and a --pod-cidr of its own", n.cfg.Bridge, b.alias)
	case b.kind != "bridge":
		return fmt.Errorf("--bridge %s: there is a network interface of that name, which is not a bridge; choose another name", n.cfg.Bridge)
	}
	return n.checkBridgeAddresses(cidr)
}

// isOtherPodds says whether a bridge is another podd's.
func (n *Network) isOtherPodds(b bridge) bool {
	return b.exists && b.alias != n.bridgeAlias() && len(b.alias) > 5 && b.alias[:5] == "podd "
}

// checkBridgeAddresses returns an error for a bridge with addresses that the plugin would remove.
func (n *Network) checkBridgeAddresses(cidr netip.Prefix) error {
	link, err := net.InterfaceByName(n.cfg.Bridge)
	if err != nil {
		return fmt.Errorf("inspect bridge %s: %w", n.cfg.Bridge, err)
	}
	addresses, err := link.Addrs()
	if err != nil {
		return fmt.Errorf("list the addresses of bridge %s: %w", n.cfg.Bridge, err)
	}
	own := netip.PrefixFrom(cidr.Addr().Next(), cidr.Bits())
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p != own {
			return fmt.Errorf("bridge %s exists and was not created by podd; as the bridge of pods it would lose its address %s: choose another --bridge, or, if it is not needed, delete it: ip link delete %s",
				n.cfg.Bridge, p, n.cfg.Bridge)
		}
	}
	return nil
}

// removeBridge removes the bridge if podd has made it. remark says why it stays.
func (n *Network) removeBridge(ctx context.Context, b bridge) (remark string, err error) {
	if !b.exists {
		return "", nil
	}
	if b.alias != n.bridgeAlias() {
		return fmt.Sprintf("bridge %s is kept: podd did not create it", n.cfg.Bridge), nil
	}
	if _, err := run(ctx, "", findTool("ip"), "link", "delete", n.cfg.Bridge); err != nil {
		return "", fmt.Errorf("remove bridge: %w", err)
	}
	return "", nil
}
