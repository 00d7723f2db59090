package cri

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// observeByID observes a pod of which the roster knows all that the runtime has. known is
// false if it does not, or if something that it knows is gone: then the pod is to be
// listed.
func (c *Client) observeByID(ctx context.Context, uid pod.UID) (seen pod.Observed, known bool, err error) {
	seen = pod.Observed{UID: uid, At: time.Now()}
	boxIDs, sandboxOf, known := c.roster.known(uid)
	if !known {
		return seen, false, nil
	}
	memo, age := c.recall(uid)
	containerIDs := slices.Collect(maps.Keys(sandboxOf))
	boxes := make([]*runtimeapi.PodSandboxStatus, len(boxIDs))
	containers := make([]*pod.Container, len(containerIDs))
	identities := make([]*runtimeapi.ContainerStatus, len(containerIDs))
	g, call := errgroup.WithContext(ctx)
	g.SetLimit(statusWidth)
	for i, id := range boxIDs {
		g.Go(func() (err error) {
			boxes[i], err = c.askSandbox(call, id)
			return err
		})
	}
	for i, id := range containerIDs {
		if k, ok := memo.containers[id]; ok && k.State == pod.ContainerExited {
			c.metrics.memo.WithLabelValues("memo").Inc()
			containers[i] = &k
			continue
		}
		g.Go(func() error {
			st, err := c.askContainer(call, id)
			if st != nil {
				identities[i], containers[i] = st, c.observedContainer(ctx, sandboxOf[id], st)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return seen, true, err
	}
	if slices.Contains(boxes, nil) || slices.Contains(containers, nil) {
		return seen, false, nil
	}
	slices.SortFunc(boxes, newestFirst)
	seen.Name, seen.Namespace, seen.Source, seen.StartTime = memo.name, memo.namespace, memo.source, memo.startTime
	identify(&seen, boxes, slices.DeleteFunc(identities, func(st *runtimeapi.ContainerStatus) bool { return st == nil }))
	seen.Sandboxes, seen.Containers = sandboxesOf(boxes), newestContainers(containers)
	c.remember(uid, memoOf(&seen), age, !seen.StartTime.IsZero())
	return seen, true, nil
}

// sandboxesOf are a pod's sandboxes with what an observation by lists has of them: of
// those that are not ready, no addresses.
func sandboxesOf(statuses []*runtimeapi.PodSandboxStatus) []pod.Sandbox {
	var out []pod.Sandbox
	for _, st := range statuses {
		box := pod.Sandbox{ID: st.Id, Attempt: st.Metadata.GetAttempt(), CreatedAt: time.Unix(0, st.CreatedAt)}
		if st.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			addSandboxStatus(&box, st)
		}
		out = append(out, box)
	}
	return out
}

// newestContainers are a pod's containers in the order of a list. The restart count is
// the attempt of what podd created.
func newestContainers(containers []*pod.Container) []pod.Container {
	var out []pod.Container
	for _, k := range containers {
		out = append(out, *k)
	}
	slices.SortFunc(out, func(a, b pod.Container) int {
		return cmp.Or(cmp.Compare(b.RestartCount, a.RestartCount), b.CreatedAt.Compare(a.CreatedAt))
	})
	return out
}
