package node

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/images/gc"
	"podd/internal/imageref"
	"podd/internal/pod"
	"podd/server"
)

// Images implements server.Runtime.
func (a serverRuntime) Images(ctx context.Context) ([]server.Image, error) {
	all, err := a.housekeeping.collector.Images(ctx)
	if err != nil {
		return nil, err
	}
	pods := a.status.Pods()
	list := make([]server.Image, len(all))
	for i, u := range all {
		list[i] = listed(u)
		list[i].Pods = usersOf(u.Image, pods)
	}
	return list, nil
}

// RemoveImages implements server.Runtime.
func (a serverRuntime) RemoveImages(ctx context.Context, name string) (removed []server.Image, err error) {
	var gone []*pod.Image
	if name == "" {
		gone, err = a.housekeeping.collector.Prune(ctx)
	} else {
		var one *pod.Image
		if one, err = a.housekeeping.collector.Remove(ctx, name); one != nil && err == nil {
			gone = append(gone, one)
		}
	}
	for _, i := range gone {
		removed = append(removed, listed(gc.Usage{Image: i}))
	}
	return removed, err
}

func listed(u gc.Usage) server.Image {
	return server.Image{
		ID: u.ID, Names: append([]string{}, u.Tags...), Digests: u.Digests, Size: u.Size, Pods: []string{}, Pinned: u.Pinned, Kept: u.Kept,
		FirstSeen: known(u.FirstSeen), LastUsed: known(u.LastUsed),
	}
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// usersOf returns the pods that have, or want, a container or a volume of an image.
func usersOf(i *pod.Image, pods []*v1.Pod) []string {
	names := slices.Concat(i.Tags, i.Digests)
	is := func(ref string) bool {
		return ref == i.ID || slices.Contains(names, ref) || slices.Contains(names, imageref.Full(ref))
	}
	users := []string{}
	for _, p := range pods {
		uses := slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.Image != nil && is(v.Image.Reference) })
		for c := range pod.ContainerSpecs(&p.Spec) {
			uses = uses || is(c.Image)
		}
		for _, cs := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses) {
			uses = uses || is(cs.ImageID)
		}
		if uses {
			users = append(users, p.Namespace+"/"+p.Name)
		}
	}
	return users
}
