package node

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"podd/agent"
	"podd/bundle"
	"podd/cri"
	"podd/internal/instance"
	"podd/internal/pod"
	"podd/internal/wake"
	"podd/node/bundled"
)

// runtimeRetryInterval is the interval between attempts to reach a runtime that does not
// respond. The bundled runtime notifies podd when it is ready.
const runtimeRetryInterval = 500 * time.Millisecond

// connect builds the connection to the container runtime: the configured one, or the bundled
// one with its supervisor. The bundled runtime may also be configured as the endpoint, as
// systemd runs it. podd then still manages its network.
func (n *Node) connect() error {
	cfg, own := n.cfg, "unix://"+bundle.Socket(n.cfg.StateDir)
	endpoint := cfg.RuntimeEndpoint
	if endpoint == "" {
		endpoint = own
		if err := n.newSupervisor(); err != nil {
			return err
		}
	} else if endpoint == own {
		if _, err := n.bundledRuntime(); err != nil {
			n.log.Warn("cannot manage the bundled runtime's pod network: it is neither checked nor cleaned up", "error", err)
		}
	}
	var err error
	root := cfg.RootDir
	if endpoint == own {
		root = n.options.RuntimeRootDir // the ID must last as long as the runtime's pods
	}
	if n.instance, err = loadInstanceIdentity(root); err != nil {
		return err
	}
	n.conn, err = cri.Connect(endpoint, cfg.RuntimeRequestTimeout, n.log, n.registry)
	return err
}

// newSupervisor builds the supervisor that keeps the bundled runtime running.
func (n *Node) newSupervisor() error {
	r, err := n.bundledRuntime()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find podd's own binary: %w", err)
	}
	n.supervisor = bundle.NewSupervisor(bundle.SupervisorConfig{
		Socket: bundle.Socket(n.cfg.StateDir), Command: append([]string{self, "runtime"}, r.Args()...),
		LogFile: bundle.LogFile(n.cfg.StateDir), Log: n.log, Registerer: n.registry,
		OnReady: func(_ int, began time.Time) { n.recordRuntimeStart(began) },
	})
	return nil
}

// bundledRuntime returns the bundled runtime's settings, and builds its pod network.
func (n *Node) bundledRuntime() (*bundled.Runtime, error) {
	binDir, err := bundle.Find(n.options.RuntimeDir)
	if err != nil {
		return nil, err
	}
	r := &bundled.Runtime{
		RootDir: n.options.RuntimeRootDir, StateDir: n.cfg.StateDir, BinDir: binDir, ConfigDir: instance.DefaultConfigDir,
		Bridge: n.options.Bridge, SandboxImage: n.options.SandboxImage, LogLevel: "warn",
	}
	if n.cfg.PodCIDR.IsValid() {
		r.PodCIDR = n.cfg.PodCIDR.String()
	}
	n.network, err = r.Network(binDir, n.log)
	return r, err
}

// recordRuntimeStart records when the process of a newly ready runtime started. Nothing reads it
// before the runtime has responded. Only the newest record counts.
func (n *Node) recordRuntimeStart(began time.Time) {
	select {
	case <-n.runtimeStarted:
	default:
	}
	n.runtimeStarted <- began // capacity 1, and one caller at a time
}

// runSecondStage waits for the runtime's first response, determines the facts, and then builds
// the second stage and runs it in g.
func (n *Node) runSecondStage(ctx context.Context, g *errgroup.Group, started time.Time) error {
	shared := make(chan struct{})
	g.Go(func() error { defer close(shared); n.setUpSharedNetwork(ctx); return nil })
	facts, err := n.awaitRuntime(ctx)
	if err != nil {
		return err
	}
	n.addresses.Refresh()
	n.status.SetOptions(facts.status(n.addresses.Current()))
	<-shared
	p, err := n.assemble(facts)
	if err != nil {
		return err
	}
	if n.membership != nil {
		n.membership.build(p)
	}
	n.server.Attach(serverRuntime{p})
	p.start(ctx, g, started)
	if facts.importsArchives() {
		p.awaitSandboxImage(ctx)
	}
	if err := n.files.PruneLinks(); err != nil {
		n.log.Warn("cannot remove links to the logs of removed containers", "error", err)
	}
	n.agentParts <- p.newAgentParts()
	p.housekeeping.run(ctx, g)
	p.startEviction(ctx, g)
	if n.membership != nil {
		n.membership.start(ctx, g, p)
	}
	n.notifier.Status("")
	return n.pleg.Run(ctx, lister{p.client, n.files})
}

// awaitRuntime queries the runtime's version until it responds. Its only error is ctx's.
func (n *Node) awaitRuntime(ctx context.Context) (Facts, error) {
	said := ""
	for {
		version, err := n.conn.Check(ctx)
		if err == nil {
			facts := n.queryFacts(ctx, version)
			if n.supervisor == nil {
				n.recordRuntimeStart(time.Time{})
			}
			return facts, nil
		}
		if ctx.Err() != nil {
			return Facts{}, ctx.Err()
		}
		if text := err.Error(); text != said && n.supervisor == nil {
			said = text
			n.log.Warn("waiting for the container runtime", "error", err)
		}
		n.notifier.Status("waiting for the container runtime: " + err.Error())
		wake.Sleep(ctx, runtimeRetryInterval)
	}
}

// awaitAgentParts returns the agent's parts. It waits at most a second for them.
func (n *Node) awaitAgentParts(ctx context.Context) (agent.Parts, error) {
	select {
	case p := <-n.agentParts:
		n.agentParts <- p // for the next call; capacity 1
		return p, nil
	case <-time.After(time.Second):
		return agent.Parts{}, fmt.Errorf("list pods: %w", pod.ErrUnavailable)
	case <-ctx.Done():
		return agent.Parts{}, context.Cause(ctx)
	}
}

// setUpSharedNetwork sets up the shared part of the default pod network if the runtime is already
// running. An older podd may have set up less, and reloading a firewall may have removed it. A
// runtime that starts later does this itself.
func (n *Node) setUpSharedNetwork(ctx context.Context) {
	if n.network == nil {
		return
	}
	if _, err := bundle.ListenerPID(bundle.Socket(n.cfg.StateDir)); err != nil {
		return
	}
	if err := n.network.SetUp(ctx); err != nil && ctx.Err() == nil {
		n.log.Error("cannot set up the pod network", "error", err)
	}
}

// onRuntimeRecovered is called when the runtime responds again after an outage.
func (n *Node) onRuntimeRecovered() {
	n.agent.WakeAll()
	n.runtimeRecovered.Notify()
	if n.supervisor == nil {
		n.recordRuntimeStart(time.Time{})
	}
}
