package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// FsUsage is the usage of one file system by images or containers.
type FsUsage struct {
	Mountpoint string
	// Used in bytes and inodes.
	Used, Inodes uint64
	At           time.Time
}

func fromImage(i *runtimeapi.Image) *pod.Image {
	out := &pod.Image{ID: i.Id, Tags: i.RepoTags, Digests: i.RepoDigests, Size: i.Size, Username: i.Username, Pinned: i.Pinned}
	if i.Uid != nil {
		uid := i.Uid.Value
		out.UID = &uid
	}
	return out
}

// ImageStatus looks an image up by any of its references or its ID; nil when the
// runtime does not have it. It does not access the network.
func (c *Client) ImageStatus(ctx context.Context, image string) (*pod.Image, error) {
	r, err := c.image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	if err != nil {
		err = mapError("", err)
		if gone(err) {
			return nil, nil
		}
		return nil, err
	}
	if r.Image == nil {
		return nil, nil
	}
	return fromImage(r.Image), nil
}

// PullImage pulls an image and returns its ID. It has no deadline of its own: the
// caller cancels it by ctx. auth may be nil. annotations are the pod's, which some
// runtimes use to choose the platform.
func (c *Client) PullImage(ctx context.Context, image string, auth *pod.RegistryAuth, annotations map[string]string) (string, error) {
	req := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image, Annotations: annotations}}
	if auth != nil {
		req.Auth = &runtimeapi.AuthConfig{
			Username: auth.Username, Password: auth.Password, Auth: auth.Auth,
			ServerAddress: auth.ServerAddress, IdentityToken: auth.IdentityToken, RegistryToken: auth.RegistryToken,
		}
	}
	r, err := c.image.PullImage(ctx, req)
	if err != nil {
		return "", mapError("", err)
	}
	return r.ImageRef, nil
}

// ListImages lists all images of the runtime.
func (c *Client) ListImages(ctx context.Context) ([]*pod.Image, error) {
	r, err := c.image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, mapError("list images", err)
	}
	out := make([]*pod.Image, 0, len(r.Images))
	for _, i := range r.Images {
		out = append(out, fromImage(i))
	}
	return out, nil
}

// RemoveImage removes an image with all its references. A missing image counts as removed.
func (c *Client) RemoveImage(ctx context.Context, image string) error {
	_, err := c.image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	if err := mapError("remove image "+image, err); err != nil && !gone(err) {
		return err
	}
	return nil
}

// ImageFsInfo returns the usage by images, and by containers' writable layers.
func (c *Client) ImageFsInfo(ctx context.Context) (images, containers []FsUsage, err error) {
	r, err := c.image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, nil, mapError("ask for the images' file system", err)
	}
	return fsUsages(r.ImageFilesystems), fsUsages(r.ContainerFilesystems), nil
}

func fsUsages(in []*runtimeapi.FilesystemUsage) []FsUsage {
	var out []FsUsage
	for _, u := range in {
		out = append(out, FsUsage{
			Mountpoint: u.FsId.GetMountpoint(),
			Used:       u.UsedBytes.GetValue(),
			Inodes:     u.InodesUsed.GetValue(),
			At:         time.Unix(0, u.Timestamp),
		})
	}
	return out
}
