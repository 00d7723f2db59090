package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent"
	"podd/bundle"
	"podd/cgroup"
	"podd/cni"
	"podd/cri"
	"podd/internal/pod"
	"podd/internal/wake"
	"podd/objects"
	"podd/podfs"
)

// observer attributes OOM kills to containers.
type observer struct {
	*cri.Client
	oom *cgroup.OOMDetector
}

// Observe is the client's Observe plus the OOM kills that the runtime did not report.
func (o observer) Observe(ctx context.Context, uid pod.UID) (pod.Observed, error) {
	seen, err := o.Client.Observe(ctx, uid)
	if err == nil {
		o.oom.Attribute(uid, &seen)
	}
	return seen, err
}

// sandboxes explains why there is no network: the runtime only reports that it has none.
type sandboxes struct {
	*cri.Client
	network *cni.Network // nil if podd does not manage the network
	objects *objects.Store
	failed  wake.Signal
	image   sandboxImage
}

// sandboxImage is the sandbox image of podd's own runtime. It comes from an archive: when it is
// missing, the runtime pulls it from its registry, but it is in no registry.
type sandboxImage struct {
	name     string // empty for a runtime that cannot import archives
	status   func(ctx context.Context, image string) (*pod.Image, error)
	archives interface {
		ReportMissing(image string)
		WaitBriefly(ctx context.Context) error
	}
}

// reimportIfMissing imports the image again if it was removed, as by crictl rmi --prune, and
// reports whether it is there now.
func (s sandboxImage) reimportIfMissing(ctx context.Context) bool {
	if s.name == "" {
		return false
	}
	if image, err := s.status(ctx, s.name); err != nil || image != nil {
		return false
	}
	s.archives.ReportMissing(s.name)
	if s.archives.WaitBriefly(ctx) != nil {
		return false
	}
	image, err := s.status(ctx, s.name)
	return err == nil && image != nil
}

// Handler returns the runtime handler of a pod. A pod from an apiserver names a RuntimeClass;
// any other pod names a handler.
func (s sandboxes) Handler(ctx context.Context, p *v1.Pod) (string, error) {
	if !pod.FromCluster(p) || p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName == "" {
		return s.Client.Handler(ctx, p)
	}
	class, err := s.objects.RuntimeClass(ctx, p)
	if err != nil {
		return "", pod.WithReason(pod.ReasonCreatePodSandboxError, err)
	}
	return s.Client.HandlerOfClass(ctx, p, class.Handler)
}

// RunSandbox restores a sandbox image that was removed, and explains why the network is not
// ready.
func (s sandboxes) RunSandbox(ctx context.Context, req pod.SandboxRequest) (string, error) {
	id, err := s.Client.RunSandbox(ctx, req)
	if err != nil && !errors.Is(err, pod.ErrUnavailable) && !errors.Is(err, pod.ErrNetworkNotReady) && !errors.Is(err, pod.ErrNameReserved) && s.image.reimportIfMissing(ctx) {
		id, err = s.Client.RunSandbox(ctx, req)
	}
	notifyOnError(s.failed, err)
	if taken, ok := errors.AsType[*pod.NameReservedError](err); ok && s.network != nil && bundle.SandboxAbandoned(ctx, s.Endpoint(), taken.Holder) {
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
	// Leave out the runtime's own message, which names another sandbox each time.
	return id, pod.WithReason("NetworkNotReady", fmt.Errorf(
		"%w: the container runtime has found no CNI configuration; put one into its CNI directory", pod.ErrNetworkNotReady))
}

// RemoveSandbox reports a sandbox that cannot be removed. The runtime may have forgotten it and
// still have its record.
func (s sandboxes) RemoveSandbox(ctx context.Context, id string) error {
	err := s.Client.RemoveSandbox(ctx, id)
	notifyOnError(s.failed, err)
	return err
}

// containers reports failed starts.
type containers struct {
	*cri.Client
	failed wake.Signal
}

func (c containers) StartContainer(ctx context.Context, id string) error {
	err := c.Client.StartContainer(ctx, id)
	notifyOnError(c.failed, err)
	return err
}

func notifyOnError(s wake.Signal, err error) {
	if err != nil {
		s.Notify()
	}
}

// waker wakes pods after something that has just happened.
type waker struct{ agent *agent.Agent }

func (w waker) Wake(uid pod.UID) { w.agent.Wake(uid, time.Time{}) }

// lister lists the runtime's pods, and removes links to logs of containers that others have
// removed.
type lister struct {
	*cri.Client
	files *podfs.Files
}

// Summaries lists the pods, and forgets the containers that are not in the list.
func (l lister) Summaries(ctx context.Context) ([]pod.Summary, error) {
	mark := l.files.MarkListing()
	listed, err := l.Client.Summaries(ctx)
	if err == nil {
		l.files.PruneUnlisted(listed, mark)
	}
	return listed, err
}

// leakedAddresses logs the addresses that a collection of the network released.
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
