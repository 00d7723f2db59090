package node

import (
	"fmt"
	"path/filepath"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podd/agent"
	"podd/plugins/devices/podresources"
	"podd/plugins/dra"
	"podd/plugins/registry"
)

// newClaims makes what prepares ResourceClaims, in a cluster: elsewhere there are none.
func (n *parts) newClaims() {
	n.podClaims, n.shownClaims = agent.NoClaims, podresources.NoClaims
	if n.membership == nil {
		return
	}
	n.claims = dra.New(dra.Config{
		RootDir: n.cfg.RootDir, NodeName: n.cfg.NodeName, Cluster: n.membership.client, Waker: deviceUser{n}, Log: n.log, Metrics: n.registry,
	})
	n.podClaims, n.shownClaims = n.claims, n.claims
	n.problems.add(n.claims.Problems)
}

// newPlugins makes the registry of plugins. A driver of dynamic resources is rejected without a
// cluster.
func (n *parts) newPlugins() (err error) {
	if n.plugins, err = registry.New(filepath.Join(n.cfg.RootDir, "plugins_registry"), n.log); err != nil {
		return fmt.Errorf("make the directory in which plugins register: %w", err)
	}
	n.plugins.Handle(registration.DevicePlugin, n.devices)
	if n.claims != nil {
		n.plugins.Handle(registration.DRAPlugin, n.claims)
	}
	return nil
}
