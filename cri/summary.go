package cri

import (
	"context"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// Summaries lists podd's own pods with the states of their sandboxes and containers, by two
// calls in all. It leaves out pods without pod.AnnotationStartTime on their sandboxes (or,
// if none is left, on their containers): they belong to somebody else, unless they are pods
// of a kubelet and podd now has its root directory. It also leaves out what carries the
// identity of another podd, and logs that podd's name once.
func (c *Client) Summaries(ctx context.Context) ([]pod.Summary, error) {
	all, err := c.list(ctx, "")
	if err != nil {
		return nil, err
	}
	sandboxes, containers, left := c.removeForeign(all.sandboxes, all.containers)
	c.warnOtherPodds(left)
	index := map[pod.UID]int{}
	var out []pod.Summary
	of := func(uid pod.UID, name, namespace string, annotations map[string]string) *pod.Summary {
		i, ok := index[uid]
		if !ok {
			if !c.isManaged(uid, annotations) {
				return nil
			}
			i = len(out)
			index[uid] = i
			out = append(out, pod.Summary{
				UID: uid, Name: name, Namespace: namespace, Source: pod.Source(annotations[pod.AnnotationSource]),
				Sandboxes: map[string]bool{}, Containers: map[string]pod.ContainerState{},
			})
		}
		return &out[i]
	}
	for _, s := range sandboxes {
		m := s.Metadata
		if g := of(pod.UID(m.GetUid()), m.GetName(), m.GetNamespace(), s.Annotations); g != nil {
			g.Sandboxes[s.Id] = s.State == runtimeapi.PodSandboxState_SANDBOX_READY
		}
	}
	for _, k := range containers {
		if g := of(pod.UID(k.Labels[spec.LabelPodUID]), k.Labels[spec.LabelPodName], k.Labels[spec.LabelPodNamespace], k.Annotations); g != nil {
			g.Containers[k.Id] = containerState(k.State)
		}
	}
	c.pruneMemos(index)
	return out, nil
}

// PodUIDs returns the pods of all sandboxes, podd's or not.
func (c *Client) PodUIDs(ctx context.Context) ([]pod.UID, error) {
	r, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, mapError("list pod sandboxes", err)
	}
	uids := make([]pod.UID, len(r.Items))
	for i, s := range r.Items {
		uids[i] = pod.UID(s.Metadata.GetUid())
	}
	return uids, nil
}

// SandboxIDs lists all sandboxes that the runtime knows, ready or not, podd's or not:
// everything that may hold a network.
func (c *Client) SandboxIDs(ctx context.Context) ([]string, error) {
	r, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, mapError("list pod sandboxes", err)
	}
	_, _, left := c.removeForeign(slices.Clone(r.Items), nil)
	c.warnOtherPodds(left)
	ids := make([]string, len(r.Items))
	for i, s := range r.Items {
		ids[i] = s.Id
	}
	return ids, nil
}
