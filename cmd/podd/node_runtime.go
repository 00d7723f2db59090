package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/cgroup"
	"podd/cni"
	"podd/cri"
	"podd/internal/pod"
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
	g.Go(func() error {
		if err := n.greet(ctx); err != nil {
			return nil // ctx ended
		}
		if n.imports {
			g.Go(func() error { return n.archives.Run(ctx) })
			n.awaitSandboxImage(ctx)
		}
		if err := n.client.PruneLogLinks(); err != nil {
			n.log.Warn("links to the logs of gone containers stay", "error", err)
		}
		close(n.greeted)
		n.notifier.Status("")
		return n.pleg.Run(ctx)
	})
	return g.Wait()
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

// observer lets the agent look at the runtime only once podd knows what it
// must be told: with which driver it makes cgroups.
type observer struct {
	*cri.Client
	greeted <-chan struct{}
}

// Glance waits a moment for the runtime's greeting.
func (o observer) Glance(ctx context.Context) ([]pod.Glance, error) {
	select {
	case <-o.greeted:
		return o.Client.Glance(ctx)
	case <-time.After(time.Second):
		return nil, fmt.Errorf("list pods: %w", pod.ErrUnavailable)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// learnFeatures asks what the runtime can do beyond the rest.
func (n *node) learnFeatures(ctx context.Context, name string) {
	s, err := n.client.Status(ctx)
	if err != nil {
		n.log.Info("the runtime does not tell its features", "error", err)
	}
	n.recursiveReadOnly.Store(s.RecursiveReadOnly)
	n.status.SetOptions(status.Options{RuntimeName: name, HostIPs: nodeAddresses(n.cfg), RecursiveReadOnly: s.RecursiveReadOnly})
}

// sandboxes gives the reason for a missing network in words that help: the
// runtime only says that there is none.
type sandboxes struct {
	*cri.Client
	network *cni.Network // nil where the network is not podd's to look after
}

func (s sandboxes) RunSandbox(ctx context.Context, req pod.SandboxRequest) (string, error) {
	id, err := s.Client.RunSandbox(ctx, req)
	if !errors.Is(err, pod.ErrNetworkNotReady) {
		return id, err
	}
	if s.network != nil {
		if why := s.network.Ready(ctx); why != nil {
			return id, pod.WithReason("NetworkNotReady", why)
		}
	}
	// Without the runtime's own sentence, which names another sandbox each time.
	return id, pod.WithReason("NetworkNotReady", fmt.Errorf(
		"%w: the container runtime found no CNI configuration when it last looked; put one into its CNI directory", pod.ErrNetworkNotReady))
}

// learnDriver takes the runtime's word for the cgroup driver over the
// configuration's, as the kubelet does (KEP-4033).
func (n *node) learnDriver(ctx context.Context) {
	rc, err := n.client.RuntimeConfig(ctx)
	if err != nil {
		n.log.Info("the runtime does not tell its cgroup driver; the configuration's is used", "driver", n.cfg.CgroupDriver, "error", err)
		return
	}
	n.cgroups.Store(cgroup.NewTree(n.facts, cgroup.Driver(rc.CgroupDriver), n.cgroupRoot()))
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

// podCgroups removes the cgroup of a pod that is gone.
type podCgroups struct{ n *node }

func (c podCgroups) RemoveCgroup(ctx context.Context, p *v1.Pod) error {
	return c.n.cgroups.Load().Remove(ctx, p.UID)
}

// Leftover compares with what the tree can tell of a UID: systemd's names
// change its dashes.
func (c podCgroups) Leftover(known []pod.UID) ([]pod.UID, error) {
	uids, err := c.n.cgroups.Load().Pods()
	return slices.DeleteFunc(uids, func(listed pod.UID) bool {
		return slices.ContainsFunc(known, func(uid pod.UID) bool { return cgroup.Matches(listed, uid) })
	}), err
}

// wakeFunc lets a function stand for the agent where the agent does not exist yet.
type wakeFunc func(pod.UID)

func (f wakeFunc) Wake(uid pod.UID) { f(uid) }

// capacity is the machine's memory in bytes (0 if unknown) and what pods may
// have of the machine.
func capacity() (memory int64, allocatable v1.ResourceList) {
	allocatable = v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		memory = int64(info.Totalram) * int64(info.Unit)
		allocatable[v1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	return memory, allocatable
}

func addresses(ips []netip.Addr) []string {
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = ip.String()
	}
	return out
}
