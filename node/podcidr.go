package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/wake"
)

// podNetwork is the bundled runtime's (cni.Network).
type podNetwork interface {
	Assign(ctx context.Context, cidrs []netip.Prefix) error
}

// podCIDRTaker is a runtime whose pod network is somebody else's.
type podCIDRTaker interface {
	UpdateRuntimeConfig(ctx context.Context, podCIDR string) error
}

// retryPodCIDR is the time between attempts to take up a podCIDR that was refused: what
// forbids it are pods that end some time. The kubelet tries again with each status, as often.
const retryPodCIDR = 10 * time.Second

// podCIDR brings the podCIDRs of the Node, which the cluster's controllers write, to the
// network of the pods: to the bundled one, unless --pod-cidr says what that has, and to
// another runtime by CRI, as a kubelet does (UpdateRuntimeConfig).
type podCIDR struct {
	network    podNetwork   // nil for another runtime
	runtime    podCIDRTaker // nil for the bundled one
	configured netip.Prefix
	// settled waits until the runtime has read what Assign has changed; changed is called
	// then. Neither is nil.
	settled func(ctx context.Context)
	changed func()
	log     *slog.Logger
	poke    wake.Signal

	mu    sync.Mutex
	given []string // the Node's, read-only
	err   error    // why they are not taken up
}

// seen is told of each version of the Node. It never blocks.
func (p *podCIDR) seen(of *v1.Node) {
	given := of.Spec.PodCIDRs
	if len(given) == 0 && of.Spec.PodCIDR != "" {
		given = []string{of.Spec.PodCIDR}
	}
	p.mu.Lock()
	p.given = given
	p.mu.Unlock()
	p.poke.Notify()
}

// notReady says why pods would not get the addresses that the cluster expects; nil if they
// do. Whether those of another runtime have a network is for that to say.
func (p *podCIDR) notReady() error {
	if p == nil || p.network == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// run takes up what the Node says until ctx ends.
func (p *podCIDR) run(ctx context.Context) error {
	var taken []string
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.poke:
		case <-retry:
		}
		p.mu.Lock()
		given := p.given
		p.mu.Unlock()
		retry = nil
		if len(given) == 0 || p.network == nil && slices.Equal(given, taken) {
			continue // a Node has none before the controllers see it, and none is taken away
		}
		err := p.take(ctx, given, slices.Equal(given, taken))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			taken = given
		} else {
			retry = time.After(retryPodCIDR)
		}
		p.tell(err)
	}
}

// tell records how the last attempt went.
func (p *podCIDR) tell(err error) {
	p.mu.Lock()
	before := p.err
	p.err = err
	p.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		p.log.Error("cannot use the Node's podCIDR: trying again", "error", err)
	}
	if (err == nil) != (before == nil) {
		p.changed()
	}
}

// take takes up the podCIDRs. again says that these have been taken up before: the network
// only looks whether it is still there.
func (p *podCIDR) take(ctx context.Context, given []string, again bool) error {
	if p.network == nil {
		return p.runtime.UpdateRuntimeConfig(ctx, strings.Join(given, ","))
	}
	cidrs := make([]netip.Prefix, len(given))
	for i, text := range given {
		var err error
		if cidrs[i], err = netip.ParsePrefix(text); err != nil {
			return fmt.Errorf("podCIDR %.50q of the Node is not a network", text)
		}
	}
	if p.configured.IsValid() {
		if !slices.Contains(cidrs, p.configured) && !again {
			p.log.Warn("pods get their addresses from --pod-cidr, and not from what the cluster has given to this node: packets of other nodes may not find them; omit --pod-cidr",
				"pod_cidr", p.configured, "cluster", strings.Join(given, ","))
		}
		return nil
	}
	if err := p.network.Assign(ctx, cidrs); err != nil {
		return err
	}
	if !again {
		p.settled(ctx)
		p.log.Info("pods get their addresses from the Node's podCIDR", "pod_cidr", strings.Join(given, ","))
		p.changed()
	}
	return nil
}

// settleTime bounds how long a runtime takes to read a configuration of its network that has
// changed: it is told by the kernel (inotify), and says nothing of it.
const settleTime = 5 * time.Second

// newPodCIDR builds what takes up the Node's podCIDRs.
func (n *parts) newPodCIDR() *podCIDR {
	p := &podCIDR{configured: n.cfg.PodCIDR, log: n.log, poke: wake.New(), settled: n.awaitNetwork, changed: func() {
		n.membership.registrar.Poke()
		n.agent.WakeAll()
	}}
	if n.network != nil {
		p.network = n.network
	} else {
		p.runtime = n.conn
	}
	return p
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
