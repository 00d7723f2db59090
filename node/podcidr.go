package node

import (
	"context"
	"time"

	"podd/cni"
	"podd/internal/wake"
)

// settleTime bounds how long a runtime may take to read a changed network configuration. It
// learns of the change from the kernel (inotify) and reports nothing.
const settleTime = 5 * time.Second

// newPodCIDR builds the part that applies the Node's podCIDRs.
func (n *runtimeParts) newPodCIDR() *cni.PodCIDR {
	cfg := cni.PodCIDRConfig{Configured: n.cfg.PodCIDR, Log: n.log, AwaitReload: n.awaitNetwork, Changed: func() {
		n.cluster.nodeStatusChanged()
		n.agent.WakeAll()
	}}
	if n.network != nil {
		cfg.Network = n.network
	} else {
		cfg.Runtime = n.conn
	}
	return cni.NewPodCIDR(cfg)
}

// awaitNetwork returns once the runtime says that pods can have a network, or after settleTime.
// The node's status has the reason then.
func (n *runtimeParts) awaitNetwork(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for ctx.Err() == nil {
		if s, err := n.conn.Status(ctx); err == nil && s.Network.OK {
			return
		}
		wake.Sleep(ctx, 50*time.Millisecond)
	}
}

// awaitPodCIDR keeps the bundled runtime from making a pod network before this node has a
// podCIDR: a configured one, one given in an earlier run, or the one that the cluster gives it.
func (n *Node) awaitPodCIDR() error {
	if n.membership == nil || n.network == nil {
		return nil
	}
	return n.network.AwaitAssignment()
}
