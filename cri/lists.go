package cri

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// lister makes lists for callers that need one. For each list a runtime walks over
// everything it has. So the callers that come while a list is in progress share the next
// one: one list of everything for any number of pods.
type lister struct {
	mu      sync.Mutex
	waiting []*listRequest // guarded by mu
	busy    bool           // somebody makes lists; guarded by mu
}

// listRequest asks for one pod's list, or, without a UID, for everybody's.
type listRequest struct {
	uid  pod.UID
	done chan struct{} // closed when what follows is set
	listed
	err error
}

// listed is the part of the runtime's lists for one pod, or for all pods.
type listed struct {
	// number is the list's, for the roster.
	number     uint64
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
}

// list returns what the runtime has of a pod, or of all pods for the empty UID, from a list
// that begins after the call. It blocks until there is one or ctx ends. The messages are
// shared and must not be changed; the slices may be.
func (c *Client) list(ctx context.Context, uid pod.UID) (listed, error) {
	r := &listRequest{uid: uid, done: make(chan struct{})}
	l := &c.lister
	l.mu.Lock()
	l.waiting = append(l.waiting, r)
	if !l.busy {
		l.busy = true
		// Others may wait for the same list: it ends with the call's own deadline.
		go c.makeLists(context.WithoutCancel(ctx))
	}
	l.mu.Unlock()
	select {
	case <-r.done:
		return r.listed, r.err
	case <-ctx.Done():
		return listed{}, mapError("list the pod's sandboxes and containers", ctx.Err())
	}
}

// makeLists makes lists until nobody waits for one.
func (c *Client) makeLists(ctx context.Context) {
	l := &c.lister
	for {
		l.mu.Lock()
		batch := l.waiting
		l.waiting = nil
		l.busy = len(batch) > 0
		l.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		c.listBatch(ctx, batch)
	}
}

// listBatch answers a batch of requests. If all are for one pod, it makes a list of that pod.
func (c *Client) listBatch(ctx context.Context, batch []*listRequest) {
	one := !slices.ContainsFunc(batch, func(r *listRequest) bool { return r.uid == "" || r.uid != batch[0].uid })
	if one {
		c.listPod(ctx, batch)
		return
	}
	number := c.roster.begin()
	sandboxes, containers, err := c.lists(ctx, nil)
	if err == nil {
		c.updateRoster(number, sandboxes, containers)
	}
	byPod := groupByPod(sandboxes, containers)
	for _, r := range batch {
		switch failed, ok := errors.AsType[*callError](err); {
		case r.uid == "":
			r.listed, r.err = listed{number, slices.Clone(sandboxes), slices.Clone(containers)}, err
		case ok && failed.code == codes.ResourceExhausted: // a list of one pod is smaller
			c.listPod(ctx, []*listRequest{r})
			continue
		default:
			of := byPod[r.uid]
			r.listed, r.err = listed{number, slices.Clone(of.sandboxes), slices.Clone(of.containers)}, err
		}
		close(r.done)
	}
}

// listPod answers requests for the same pod.
func (c *Client) listPod(ctx context.Context, batch []*listRequest) {
	number, uid := c.roster.begin(), batch[0].uid
	sandboxes, containers, err := c.lists(ctx, map[string]string{spec.LabelPodUID: string(uid)})
	if err == nil {
		c.roster.recordPodList(uid, number, c.newPodList(uid, sandboxes, containers))
	}
	for _, r := range batch {
		r.listed, r.err = listed{number, slices.Clone(sandboxes), slices.Clone(containers)}, err
		close(r.done)
	}
}

// updateRoster passes a list of everything to the roster.
func (c *Client) updateRoster(number uint64, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) {
	all := make(map[pod.UID]podList)
	for uid, of := range groupByPod(sandboxes, containers) {
		all[uid] = c.newPodList(uid, of.sandboxes, of.containers)
	}
	c.roster.recordFullList(number, all)
}

// groupByPod groups lists by pod.
func groupByPod(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) map[pod.UID]listed {
	byPod := make(map[pod.UID]listed)
	for _, s := range sandboxes {
		uid := pod.UID(s.Metadata.GetUid())
		of := byPod[uid]
		of.sandboxes = append(of.sandboxes, s)
		byPod[uid] = of
	}
	for _, k := range containers {
		uid := pod.UID(k.Labels[spec.LabelPodUID])
		of := byPod[uid]
		of.containers = append(of.containers, k)
		byPod[uid] = of
	}
	return byPod
}

// newPodList extracts what the roster needs from the lists of a pod.
func (c *Client) newPodList(uid pod.UID, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) podList {
	l := podList{containers: make(map[string]string, len(containers))}
	own := func(annotations map[string]string) bool {
		return annotations[pod.AnnotationStartTime] != "" && c.owner(uid, annotations) == ""
	}
	for _, s := range sandboxes {
		l.sandboxes = append(l.sandboxes, s.Id)
		l.shared = l.shared || !own(s.Annotations)
	}
	for _, k := range containers {
		l.containers[k.Id] = k.PodSandboxId
		l.shared = l.shared || !own(k.Annotations)
	}
	return l
}

// lists queries sandboxes and containers concurrently.
func (c *Client) lists(ctx context.Context, labels map[string]string) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container, error) {
	var sandboxes *runtimeapi.ListPodSandboxResponse
	var containers *runtimeapi.ListContainersResponse
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		sandboxes, err = c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels}})
		return c.explainOversizedList(ctx, labels, mapError("list pod sandboxes", err))
	})
	g.Go(func() (err error) {
		containers, err = c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: labels}})
		return c.explainOversizedList(ctx, labels, mapError("list containers", err))
	})
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	return sandboxes.GetItems(), containers.GetContainers(), nil
}
