package node

import (
	"context"
	"path/filepath"

	"podd/nodeshutdown"
	"podd/systemd"
)

// newShutdown builds what ends the pods when the machine goes down.
func (n *Node) newShutdown() *nodeshutdown.Manager {
	var periods []nodeshutdown.Period
	for _, p := range n.cfg.Shutdown.Periods {
		periods = append(periods, nodeshutdown.Period{Priority: p.Priority, Length: p.Length})
	}
	return nodeshutdown.New(nodeshutdown.Config{
		Agent: n.agent, Periods: periods, Default: n.cfg.Shutdown.Graceful && n.membership == nil,
		IsStopping: systemd.IsStopping, ExtendTimeout: n.notifier.ExtendTimeout, StatusChanged: n.cluster.nodeStatusChanged, RecordEvent: n.recorder.NodeEvent,
		StateFile: filepath.Join(n.cfg.RootDir, "graceful_node_shutdown_state"), Log: n.log, Metrics: n.registry,
	})
}

// awaitEnd blocks until ctx, which ends when podd is told to stop, or parts, which end when one
// of them fails. If the whole machine is being stopped, the parts go on until all pods have ended.
func (n *Node) awaitEnd(ctx, parts context.Context) {
	select {
	case <-ctx.Done():
		n.notifier.Stopping()
		n.shutdown.OnStop(parts)
	case <-parts.Done():
		n.notifier.Stopping()
	}
	if n.shutdown.ShuttingDown() == nil {
		n.log.Info("podd is stopping: pods and runtime keep running")
	}
}
