package node

import (
	"fmt"
	"path/filepath"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podd/agent"
	"podd/internal/features"
	"podd/plugins/devices/podresources"
	"podd/plugins/dra"
	"podd/plugins/registry"
)

// newDRAManager builds the manager that prepares ResourceClaims. Only a cluster has them.
func (n *runtimeParts) newDRAManager() {
	n.resourceClaims, n.podResourcesClaims = agent.NoResourceClaims, podresources.NoResourceClaims
	if n.membership == nil {
		return
	}
	n.draManager = dra.New(dra.Config{
		RootDir: n.cfg.RootDir, NodeName: n.cfg.NodeName, Cluster: n.membership.client, Waker: deviceWaker{n},
		OptionalOperations: n.cfg.Features.Enabled(features.DRAOptionalNodeOperations), Log: n.log, Metrics: n.registry,
	})
	n.resourceClaims, n.podResourcesClaims = n.draManager, n.draManager
	n.problems.add(n.draManager.Problems)
}

// newPlugins builds the registry of plugins. Without a cluster it rejects drivers of dynamic
// resources.
func (n *runtimeParts) newPlugins() (err error) {
	if n.plugins, err = registry.New(filepath.Join(n.cfg.RootDir, "plugins_registry"), n.log); err != nil {
		return fmt.Errorf("make the directory in which plugins register: %w", err)
	}
	n.registry.MustRegister(n.plugins)
	n.plugins.Handle(registration.DevicePlugin, n.devices)
	if n.draManager != nil {
		n.plugins.Handle(registration.DRAPlugin, n.draManager)
	}
	return nil
}
