package cri

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pod"
	"podd/podfs"
)

// RunningLogs lists the live logs of podd's running containers, by one call. The
// kubelet queries each container's status instead.
func (c *Client) RunningLogs(ctx context.Context) ([]pod.ContainerLog, error) {
	r, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, mapError("list running containers", err)
	}
	logs := make([]pod.ContainerLog, 0, len(r.Containers))
	for _, k := range r.Containers {
		if !c.isOwn(k) {
			continue
		}
		logs = append(logs, pod.ContainerLog{ID: k.Id, Path: c.logOf(k)})
	}
	return logs, nil
}

// logOf returns the path of a container's log as it was observed, or where it should be.
func (c *Client) logOf(k *runtimeapi.Container) string {
	l := k.Labels
	uid := pod.UID(l[spec.LabelPodUID])
	if memo, _ := c.loadMemo(uid); memo.containers[k.Id].LogPath != "" {
		return filepath.Clean(memo.containers[k.Id].LogPath)
	}
	dir := c.spec.Dirs.Logs(l[spec.LabelPodNamespace], l[spec.LabelPodName], uid)
	return filepath.Join(dir, podfs.ContainerLogPath(l[spec.LabelContainerName], int32(k.Metadata.GetAttempt())))
}

// PodUsedImage says whether the pod has a container, even a dead one, that uses the image
// with that ID as its own or as a volume.
func (c *Client) PodUsedImage(ctx context.Context, uid pod.UID, imageID string) (bool, error) {
	r, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{spec.LabelPodUID: string(uid)},
	}})
	if err != nil {
		return false, mapError("list containers", err)
	}
	return slices.ContainsFunc(r.Containers, func(k *runtimeapi.Container) bool { return slices.Contains(imagesOf(k), imageID) }), nil
}

// imagesOf returns the IDs and names of a container's images.
func imagesOf(k *runtimeapi.Container) []string {
	mounted := strings.Split(k.Annotations[pod.AnnotationImageVolumes], ",")
	return append(mounted, k.ImageId, k.ImageRef, k.Image.GetImage(), k.Image.GetUserSpecifiedImage())
}

// ContainerImages returns the IDs and names of the images of all containers that the
// runtime knows, including dead ones, by one call: own are those of this podd's containers,
// including images that they mount as volumes; others are those of other containers. A name
// may occur more than once.
func (c *Client) ContainerImages(ctx context.Context) (own, others []string, err error) {
	r, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, nil, mapError("list containers", err)
	}
	for _, k := range r.Containers {
		images := &others
		if c.isOwn(k) {
			images = &own
		}
		for _, name := range imagesOf(k) {
			if name != "" {
				*images = append(*images, name)
			}
		}
	}
	return own, others, nil
}
