package node

import (
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podd/agent"
	"podd/csi"
	"podd/devices/podresources"
	"podd/dra"
)

// newClaims makes what prepares ResourceClaims, in a cluster: elsewhere there are none.
func (n *parts) newClaims() {
	if n.membership == nil {
		return
	}
	n.claims = dra.New(dra.Config{
		RootDir: n.cfg.RootDir, NodeName: n.cfg.NodeName, Cluster: n.membership.client, Waker: deviceUser{n}, Log: n.log, Metrics: n.registry,
	})
	n.problems.add(n.claims.Problems)
}

// plugins has those that register as CSI drivers do. A driver of dynamic resources is
// rejected without a cluster.
func (n *parts) plugins() map[string]csi.PluginHandler {
	all := map[string]csi.PluginHandler{registration.DevicePlugin: n.devices}
	if n.claims != nil {
		all[registration.DRAPlugin] = n.claims
	}
	return all
}

// podClaims returns the claims for the agent; nil without a cluster.
func (n *parts) podClaims() agent.Claims {
	if n.claims == nil {
		return nil
	}
	return n.claims
}

// shownClaims returns the claims for the pod resources API; nil without a cluster.
func (n *parts) shownClaims() podresources.Claims {
	if n.claims == nil {
		return nil
	}
	return n.claims
}
