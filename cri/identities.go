package cri

import (
	"context"

	"podd/cri/spec"
	"podd/internal/pod"
)

// Identities identifies all sandboxes and containers, podd's or not, running or not, by two
// calls. sandboxImage is the image of sandboxes, which CRI does not report.
func (c *Client) Identities(ctx context.Context, sandboxImage string) ([]pod.Identity, error) {
	sandboxes, containers, err := c.lists(ctx, nil)
	if err != nil {
		return nil, err
	}
	all := make([]pod.Identity, 0, len(sandboxes)+len(containers))
	for _, s := range sandboxes {
		m := s.Metadata
		all = append(all, pod.Identity{ID: s.Id, UID: pod.UID(m.GetUid()), Pod: m.GetName(), Namespace: m.GetNamespace(), Image: sandboxImage})
	}
	for _, k := range containers {
		image := k.Image.GetUserSpecifiedImage()
		if image == "" {
			image = k.Image.GetImage()
		}
		all = append(all, pod.Identity{
			ID: k.Id, UID: pod.UID(k.Labels[spec.LabelPodUID]), Pod: k.Labels[spec.LabelPodName], Namespace: k.Labels[spec.LabelPodNamespace],
			Container: k.Metadata.GetName(), Image: image,
		})
	}
	return all, nil
}
