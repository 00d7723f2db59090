package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"

	"podd/bundle"
	"podd/cgroup"
	"podd/cni"
	"podd/cri"
	"podd/internal/pod"
)

// observer lets the agent look at the runtime only once podd knows what it
// must be told: with which driver it makes cgroups.
type observer struct {
	*cri.Client
	greeted <-chan struct{}
	oom     *oomWitness
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

// sandboxes gives the reason for a missing network in words that help: the
// runtime only says that there is none.
type sandboxes struct {
	*cri.Client
	network *cni.Network // nil where the network is not podd's to look after
}

func (s sandboxes) RunSandbox(ctx context.Context, req pod.SandboxRequest) (string, error) {
	id, err := s.Client.RunSandbox(ctx, req)
	if taken, ok := errors.AsType[*pod.NameReservedError](err); ok && s.network != nil && s.abandoned(ctx, taken.Holder) {
		return id, fmt.Errorf("%w; %w", err, pod.ErrNameLost)
	}
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

// abandoned says that the bundled containerd holds a name for a sandbox that no
// call makes any more. Where it does not say, time has to tell.
func (s sandboxes) abandoned(ctx context.Context, holder string) bool {
	conn, err := grpc.NewClient(s.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	lost, err := bundle.Containerd{Conn: conn}.Abandoned(ctx, holder)
	return err == nil && lost
}

// podCgroups makes, changes and removes the cgroups of pods.
type podCgroups struct{ n *node }

func (c podCgroups) RemoveCgroup(ctx context.Context, p *v1.Pod) error {
	return c.n.cgroups.Load().Remove(ctx, p.UID)
}

func (c podCgroups) Strays(uid pod.UID, known []string) ([]string, error) {
	return c.n.cgroups.Load().Strays(uid, known)
}

func (c podCgroups) Busy(uid pod.UID) (bool, error) { return c.n.cgroups.Load().Busy(uid) }

// Leftover compares with what the tree can tell of a UID: systemd's names
// change its dashes. Pods that another podd made on this runtime may have theirs
// in the same place.
func (c podCgroups) Leftover(ctx context.Context, known []pod.UID) ([]pod.UID, error) {
	all, err := c.n.client.PodUIDs(ctx)
	if err != nil {
		return nil, err
	}
	known = append(slices.Clone(known), all...)
	uids, err := c.n.cgroups.Load().Pods()
	return slices.DeleteFunc(uids, func(listed pod.UID) bool {
		return slices.ContainsFunc(known, func(uid pod.UID) bool { return cgroup.Matches(listed, uid) })
	}), err
}

// wakeFunc lets a function stand for the agent where the agent does not exist yet.
type wakeFunc func(pod.UID)

func (f wakeFunc) Wake(uid pod.UID) { f(uid) }
