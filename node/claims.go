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

// newClaims builds the manager that prepares ResourceClaims. Only a cluster has them.
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

// newPlugins builds the registry of plugins. Without a cluster it rejects drivers of dynamic
// resources.
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
