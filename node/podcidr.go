package node

import (
	"context"
	"time"

	"podd/cni"
	"podd/internal/wake"
)

// settleTime bounds how long a runtime takes to read a configuration of its network that has
// changed: it is told by the kernel (inotify), and says nothing of it.
const settleTime = 5 * time.Second

// newPodCIDR builds what takes up the Node's podCIDRs.
func (n *parts) newPodCIDR() *cni.PodCIDR {
	cfg := cni.PodCIDRConfig{Configured: n.cfg.PodCIDR, Log: n.log, Settled: n.awaitNetwork, Changed: func() {
		n.cluster.changed()
		n.agent.WakeAll()
	}}
	if n.network != nil {
		cfg.Network = n.network
	} else {
		cfg.Runtime = n.conn
	}
	return cni.NewPodCIDR(cfg)
}

// awaitNetwork returns when the runtime says that pods can have a network, or has not said it
// for long: the node's status tells why.
func (n *parts) awaitNetwork(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for ctx.Err() == nil {
		if s, err := n.conn.Status(ctx); err == nil && s.Network.OK {
			return
		}
		wake.Sleep(ctx, 50*time.Millisecond)
	}
}

// awaitPodCIDR has the bundled runtime make no pod network before the cluster has given this
// node a podCIDR, unless one was configured, or given in an earlier run.
func (n *Node) awaitPodCIDR() error {
	if n.membership == nil || n.network == nil {
		return nil
	}
	return n.network.Await()
}
