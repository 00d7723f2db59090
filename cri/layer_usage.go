package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// LayerUsage is a container's usage outside of its volumes, as the runtime last measured
// it.
type LayerUsage struct {
	Bytes, Inodes int64
	// Mountpoint is the node's mount point of the file system that has the layer; empty if
	// the runtime does not say.
	Mountpoint string
}

// LayerUsage returns the usage of one container. It blocks for one call.
func (c *Client) LayerUsage(ctx context.Context, id string) (LayerUsage, error) {
	r, err := c.runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		return LayerUsage{}, mapError("ask what container "+short(id)+" takes", err)
	}
	w := r.GetStats().GetWritableLayer()
	return LayerUsage{
		Bytes: int64(w.GetUsedBytes().GetValue()), Inodes: int64(w.GetInodesUsed().GetValue()), Mountpoint: w.GetFsId().GetMountpoint(),
	}, nil
}
