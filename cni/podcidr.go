package cni

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

// Assigner is the bundled runtime's network (Network).
type Assigner interface {
	Assign(ctx context.Context, cidrs []netip.Prefix) error
}

// RuntimeConfig is a runtime with a pod network of its own.
type RuntimeConfig interface {
	UpdateRuntimeConfig(ctx context.Context, podCIDR string) error
}

// retryPodCIDR is the time between attempts to apply a podCIDR that was refused: the pods
// that forbid it end at some time. The kubelet tries again with each status, as often.
const retryPodCIDR = 10 * time.Second

// PodCIDRConfig configures a PodCIDR. One of Network and Runtime is set.
type PodCIDRConfig struct {
	Network Assigner
	Runtime RuntimeConfig
	// Configured is the network of --pod-cidr, which is used instead; zero for none.
	Configured netip.Prefix
	// AwaitReload blocks until the runtime has read what Assign has changed. Changed is called
	// then, and when NotReady changes its answer; it must not block.
	AwaitReload func(ctx context.Context)
	Changed     func()
	Log         *slog.Logger
}

// PodCIDR applies the podCIDRs of the Node, which the cluster's controllers write, to the
// network of the pods. It assigns them to the bundled network, unless --pod-cidr
// configures that, and passes them to another runtime by CRI, as a kubelet does
// (UpdateRuntimeConfig). Create it with NewPodCIDR.
type PodCIDR struct {
	cfg  PodCIDRConfig
	poke wake.Signal

	mu      sync.Mutex
	desired []string // the Node's, read-only
	err     error    // why they are not applied
}

// NewPodCIDR returns a PodCIDR that has seen no Node.
func NewPodCIDR(cfg PodCIDRConfig) *PodCIDR { return &PodCIDR{cfg: cfg, poke: wake.New()} }

// ObserveNode gets each version of the Node. It never blocks.
func (p *PodCIDR) ObserveNode(of *v1.Node) {
	desired := of.Spec.PodCIDRs
	if len(desired) == 0 && of.Spec.PodCIDR != "" {
		desired = []string{of.Spec.PodCIDR}
	}
	p.mu.Lock()
	p.desired = desired
	p.mu.Unlock()
	p.poke.Notify()
}

// NotReady says why pods would not get the addresses that the cluster expects; nil if they
// do. Another runtime says itself whether its pods have a network.
func (p *PodCIDR) NotReady() error {
	if p.cfg.Network == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Run applies what the Node says until ctx ends.
func (p *PodCIDR) Run(ctx context.Context) error {
	var applied []string
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.poke:
		case <-retry:
		}
		p.mu.Lock()
		desired := p.desired
		p.mu.Unlock()
		retry = nil
		if len(desired) == 0 || p.cfg.Network == nil && slices.Equal(desired, applied) {
			continue // a Node has none before the controllers see it, and none is taken away
		}
		err := p.apply(ctx, desired, slices.Equal(desired, applied))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			applied = desired
		} else {
			retry = time.After(retryPodCIDR)
		}
		p.recordResult(err)
	}
}

// recordResult records how the last attempt went.
func (p *PodCIDR) recordResult(err error) {
	p.mu.Lock()
	before := p.err
	p.err = err
	p.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		p.cfg.Log.Error("cannot use the Node's podCIDR: trying again", "error", err)
	}
	if (err == nil) != (before == nil) {
		p.cfg.Changed()
	}
}

// apply applies the podCIDRs. again says that they were applied before: the network then
// only checks whether it still exists.
func (p *PodCIDR) apply(ctx context.Context, desired []string, again bool) error {
	if p.cfg.Network == nil {
		return p.cfg.Runtime.UpdateRuntimeConfig(ctx, strings.Join(desired, ","))
	}
	cidrs := make([]netip.Prefix, len(desired))
	for i, text := range desired {
		var err error
		if cidrs[i], err = netip.ParsePrefix(text); err != nil {
			return fmt.Errorf("podCIDR %.50q of the Node is not a network", text)
		}
	}
	if p.cfg.Configured.IsValid() {
		if !slices.Contains(cidrs, p.cfg.Configured) && !again {
			p.cfg.Log.Warn("pods get their addresses from --pod-cidr, and not from what the cluster has given to this node: packets of other nodes may not find them; omit --pod-cidr",
				"pod_cidr", p.cfg.Configured, "cluster", strings.Join(desired, ","))
		}
		return nil
	}
	if err := p.cfg.Network.Assign(ctx, cidrs); err != nil {
		return err
	}
	if !again {
		p.cfg.AwaitReload(ctx)
		p.cfg.Log.Info("pods get their addresses from the Node's podCIDR", "pod_cidr", strings.Join(desired, ","))
		p.cfg.Changed()
	}
	return nil
}
