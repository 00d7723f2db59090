package node

import (
	"net"
	"net/netip"
	"slices"
	"sync"

	"podd/config"
)

// nodeAddresses are the node's, primary first, at most one per IP family; none if it has no
// network. Everything that shows them to pods or users uses these. They are looked up when
// podd starts and when the runtime has responded, and in a cluster with each of the Node's
// states, as a kubelet's: the machine may have got another one (DHCP, another network).
type nodeAddresses struct {
	find func() []string

	mu    sync.Mutex
	known []string // replaced, never changed
}

func newNodeAddresses(find func() []string) *nodeAddresses {
	return &nodeAddresses{find: find, known: find()}
}

// now returns the addresses, which are read-only. It does not block.
func (a *nodeAddresses) now() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known
}

// look looks them up and says whether they have changed. A machine that has none at the
// moment keeps the last ones: a cable that is out is no new address.
func (a *nodeAddresses) look() bool {
	found := a.find()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(found) == 0 || slices.Equal(found, a.known) {
		return false
	}
	a.known = found
	return true
}

// lookForAddresses has pods' statuses follow the node's addresses. What runs keeps the
// variables that it was started with.
func (n *parts) lookForAddresses() {
	before := n.addresses.now()
	if !n.addresses.look() {
		return
	}
	now := n.addresses.now()
	n.log.Warn("the node has other addresses", "before", before, "now", now)
	n.status.SetOptions(n.facts.status(now))
	if err := n.membership.client.Reconnect(); err != nil {
		n.log.Warn("cannot make new connections to the apiserver: the old ones may not work any more", "error", err)
	}
	n.agent.WakeAll()
}

// addresses returns the configured ones, or the address that this machine would
// now use to reach others; none if it has no route.
func addresses(cfg *config.Config) []string {
	if len(cfg.NodeIPs) > 0 {
		return texts(cfg.NodeIPs)
	}
	var out []string
	// Connecting a datagram socket sends nothing: it only picks the route. The
	// addresses are of documentation networks (RFC 5737, RFC 3849).
	for _, target := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.Dial("udp", target)
		if err != nil {
			continue
		}
		if local, ok := conn.LocalAddr().(*net.UDPAddr); ok && !local.IP.IsLoopback() {
			out = append(out, local.IP.String())
		}
		_ = conn.Close()
	}
	return out
}

func texts(ips []netip.Addr) []string {
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = ip.String()
	}
	return out
}
