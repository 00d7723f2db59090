package logrotate

import (
	"context"
	"time"

	"podd/internal/pod"
)

// listTTL is how long a list of running containers is used while no pod's status changes:
// every start and exit changes one.
const listTTL = time.Minute

// Cache returns a Runtime for one Rotator. It lists the logs anew after each receipt from changed,
// and once a minute: with 58 pods, a list every ten seconds would be half of what podd and
// containerd do when idle.
func Cache(r Runtime, changed <-chan struct{}) Runtime { return &cache{Runtime: r, changed: changed} }

type cache struct {
	Runtime
	changed <-chan struct{}
	logs    []pod.ContainerLog
	at      time.Time // of logs
}

// RunningLogs is only called by the rotator's loop.
func (c *cache) RunningLogs(ctx context.Context) ([]pod.ContainerLog, error) {
	select {
	case <-c.changed:
	default:
		if time.Since(c.at) < listTTL {
			return c.logs, nil
		}
	}
	logs, err := c.Runtime.RunningLogs(ctx)
	if err != nil {
		c.at = time.Time{}
		return nil, err
	}
	c.logs, c.at = logs, time.Now()
	return logs, nil
}
