package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"podd/bundle"
	"podd/cgroup"
	"podd/status"
)

// askAgain is how often a runtime that does not answer is asked again; the
// bundled one says itself when it is ready.
const askAgain = 500 * time.Millisecond

// followRuntime waits for the runtime's first answer, learns what it must be
// told about it, and then runs everything that needs it.
func (n *node) followRuntime(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	started := time.Now()
	g.Go(func() error { return n.collect(ctx, started) })
	g.Go(func() error { return n.agent.Run(ctx, n.config.Updates()) })
	shared := make(chan struct{})
	g.Go(func() error { defer close(shared); n.renewNetwork(ctx); return nil })
	g.Go(func() error {
		if err := n.greet(ctx); err != nil {
			return nil // ctx ended
		}
		<-shared
		if n.imports {
			g.Go(func() error { return n.archives.Run(ctx) })
			n.awaitSandboxImage(ctx)
		}
		if err := n.client.PruneLogLinks(); err != nil {
			n.log.Warn("links to the logs of gone containers stay", "error", err)
		}
		close(n.greeted)
		n.keep.run(ctx, g)
		n.notifier.Status("")
		return n.pleg.Run(ctx)
	})
	return g.Wait()
}

// renewNetwork makes what all pods of the default network share, where the runtime
// is there already: an older podd's may have made less of it, and the reload of a
// firewall may have taken it away. A runtime that is still to be started does it.
func (n *node) renewNetwork(ctx context.Context) {
	if n.network == nil {
		return
	}
	if _, err := bundle.Listener(bundle.Socket(n.cfg.StateDir)); err != nil {
		return
	}
	if err := n.network.SetUp(ctx); err != nil && ctx.Err() == nil {
		n.log.Error("the pod network is not as it should be", "error", err)
	}
}

// greet asks the runtime who it is until it answers.
func (n *node) greet(ctx context.Context) error {
	said := ""
	for {
		version, err := n.client.Check(ctx)
		if err == nil {
			n.learnFeatures(ctx, version.Name)
			n.learnDriver(ctx)
			if n.imports = version.Name == "containerd"; !n.imports {
				n.log.Info("the image directory is not read: archives can only be imported into containerd", "runtime", version.Name)
			}
			if n.supervisor == nil {
				n.noteRuntime(time.Time{})
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if text := err.Error(); text != said && n.supervisor == nil {
			said = text
			n.log.Warn("waiting for the container runtime", "error", err)
		}
		n.notifier.Status("waiting for the container runtime: " + err.Error())
		sleep(ctx, askAgain)
	}
}

// awaitSandboxImage holds pods back, on a machine's first start only, until
// the image that every sandbox needs has come from the image directory or is
// known not to come.
func (n *node) awaitSandboxImage(ctx context.Context) {
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		_ = waitArchives(ctx, n.archives)
	}()
	if n.network == nil {
		return // a runtime with a sandbox image of its own
	}
	for {
		if image, err := n.client.ImageStatus(ctx, n.own.sandboxImage); err == nil && image != nil {
			return
		}
		select {
		case <-n.imported:
		case <-settled:
			return
		case <-ctx.Done():
			return
		}
	}
}

// learnFeatures asks what the runtime can do beyond the rest.
func (n *node) learnFeatures(ctx context.Context, name string) {
	s, err := n.client.Status(ctx)
	if err != nil {
		n.log.Info("the runtime does not tell its features", "error", err)
	}
	n.recursiveReadOnly.Store(s.RecursiveReadOnly)
	n.strictGroups.Store(s.StrictGroups)
	n.status.SetOptions(status.Options{RuntimeName: name, HostIPs: nodeAddresses(n.cfg), RecursiveReadOnly: s.RecursiveReadOnly})
}

// learnDriver takes the runtime's word for the cgroup driver over the
// configuration's, as the kubelet does (KEP-4033).
func (n *node) learnDriver(ctx context.Context) {
	rc, err := n.client.RuntimeConfig(ctx)
	if err != nil {
		n.log.Info("the runtime does not tell its cgroup driver; the configuration's is used", "driver", n.cfg.CgroupDriver, "error", err)
		return
	}
	n.cgroups.Store(n.cgroupTree(cgroup.Driver(rc.CgroupDriver)))
	n.log.Debug("cgroup driver", "driver", rc.CgroupDriver)
}

// runtimeBack is called when the runtime answers again after it did not.
func (n *node) runtimeBack() {
	n.agent.WakeAll()
	if n.imports {
		n.archives.Recheck()
	}
	if n.supervisor == nil {
		n.noteRuntime(time.Time{})
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
