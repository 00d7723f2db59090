package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"podd/agent"
	"podd/bundle"
	"podd/cgroup"
	"podd/cni"
	"podd/cri"
	"podd/internal/pod"
	"podd/podfs"
)

// observer says of containers that the kernel killed for their memory that it did.
type observer struct {
	*cri.Client
	oom *cgroup.OOMWitness
}

// Observe is the client's, with the reasons that the runtime missed.
func (o observer) Observe(ctx context.Context, uid pod.UID) (pod.Observed, error) {
	seen, err := o.Client.Observe(ctx, uid)
	if err == nil {
		o.oom.Attribute(uid, &seen)
	}
	return seen, err
}

// sandboxes gives the reason for a missing network in words that help: the
// runtime only says that there is none.
type sandboxes struct {
	*cri.Client
	network *cni.Network // nil where the network is not podd's to look after
	failed  poke
}

func (s sandboxes) RunSandbox(ctx context.Context, req pod.SandboxRequest) (string, error) {
	id, err := s.Client.RunSandbox(ctx, req)
	s.failed.on(err)
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

// containers tells of starts that failed.
type containers struct {
	*cri.Client
	failed poke
}

func (c containers) StartContainer(ctx context.Context, id string) error {
	err := c.Client.StartContainer(ctx, id)
	c.failed.on(err)
	return err
}

// poke tells one who listens, who may be told already.
type poke chan<- struct{}

func (p poke) on(err error) {
	if err == nil {
		return
	}
	select {
	case p <- struct{}{}:
	default:
	}
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

// waker wakes pods of the agent for something that happens now.
type waker struct{ agent *agent.Agent }

func (w waker) Wake(uid pod.UID) { w.agent.Wake(uid, time.Time{}) }

// lister is the runtime as it is listed: the links to logs of containers that
// somebody else has removed go with each list.
type lister struct {
	*cri.Client
	files *podfs.Files
}

// Summaries forgets the containers that the list does not have.
func (l lister) Summaries(ctx context.Context) ([]pod.Summary, error) {
	mark := l.files.Mark()
	listed, err := l.Client.Summaries(ctx)
	if err == nil {
		l.files.KeepOnly(listed, mark)
	}
	return listed, err
}

// leakedAddresses tells what a collection of the network found.
type leakedAddresses struct {
	network *cni.Network
	log     *slog.Logger
}

func (l leakedAddresses) Collect(ctx context.Context, live []string, before time.Time) {
	got, err := l.network.Collect(ctx, live, before)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot release all leaked addresses", "error", err)
	}
	if got.Any() {
		l.log.Info("released leaked addresses", "attachments", got.Attachments, "leases", got.Leases, "namespaces", got.Namespaces)
	}
}
