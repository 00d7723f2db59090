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

// observeByID observes a pod by the IDs that the roster has. known is false if the roster
// does not know everything that the runtime has of the pod, or if something that it knows
// is gone: then the pod must be listed.
func (c *Client) observeByID(ctx context.Context, uid pod.UID) (seen pod.Observed, known bool, err error) {
	seen = pod.Observed{UID: uid, At: time.Now()}
	boxIDs, sandboxOf, known := c.roster.known(uid)
	if !known {
		return seen, false, nil
	}
	memo, age := c.loadMemo(uid)
	containerIDs := slices.Collect(maps.Keys(sandboxOf))
	boxes := make([]*runtimeapi.PodSandboxStatus, len(boxIDs))
	containers := make([]*pod.Container, len(containerIDs))
	identities := make([]*runtimeapi.ContainerStatus, len(containerIDs))
	g, call := errgroup.WithContext(ctx)
	g.SetLimit(maxStatusCalls)
	for i, id := range boxIDs {
		g.Go(func() (err error) {
			boxes[i], err = c.getSandboxStatus(call, id)
			return err
		})
	}
	for i, id := range containerIDs {
		if k, ok := memo.containers[id]; ok && k.State == pod.ContainerExited {
			c.metrics.statusLookups.WithLabelValues("memo").Inc()
			containers[i] = &k
			continue
		}
		g.Go(func() error {
			st, err := c.getContainerStatus(call, id)
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
	c.storeMemo(uid, memoOf(&seen), age, !seen.StartTime.IsZero())
	return seen, true, nil
}

// sandboxesOf returns a pod's sandboxes as an observation by lists has them: sandboxes that
// are not ready have no addresses.
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

// newestContainers returns a pod's containers in the order of a list. The restart count of
// a container that podd created is its attempt.
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
