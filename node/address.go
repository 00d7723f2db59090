package node

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// followNodeAddresses makes the node's addresses follow the Node's, if a cloud controller manager
// sets these. It does not block.
func (n *runtimeParts) followNodeAddresses(of *v1.Node) {
	if n.cfg.ExternalCloud {
		n.addresses.SetFromNode(of.Status.Addresses)
	}
}

// refreshAddresses updates pods' statuses when the node's addresses change. Running containers
// keep the variables that they were started with.
func (n *runtimeParts) refreshAddresses() {
	before := n.addresses.Current()
	if !n.addresses.Refresh() {
		return
	}
	now := n.addresses.Current()
	n.log.Warn("the node has other addresses", "before", before, "now", now)
	n.status.SetOptions(n.facts.status(now))
	if err := n.membership.client.Reconnect(); err != nil {
		n.log.Warn("cannot make new connections to the apiserver: the old ones may not work any more", "error", err)
	}
	n.agent.WakeAll()
}

func texts(ips []netip.Addr) []string {
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = ip.String()
	}
	return out
}
