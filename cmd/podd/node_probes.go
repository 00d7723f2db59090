package main

import (
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"podd/hooks"
	"podd/internal/pod"
	"podd/prober"
)

// newProbes builds what talks to containers: the prober and the runner of
// lifecycle handlers. The prober wakes the agent, which exists only after it.
func (n *node) newProbes(wake interface{ Wake(pod.UID) }) {
	n.probeMetrics = prometheus.NewRegistry()
	n.prober = prober.New(prober.Config{
		Execer: n.client, Waker: wake, Events: n.recorder,
		// What is known of containers is worth nothing after a boot, as they are gone.
		StateDir: filepath.Join(n.cfg.StateDir, "probes"),
		Log:      n.log, Metrics: n.registry, PerProbe: n.probeMetrics,
	})
	n.hooks = hooks.New(hooks.Config{Execer: n.client, Events: n.recorder, Log: n.log, Metrics: n.registry})
}
