package bundle

import (
	"context"
	"fmt"
	"strings"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/types"
)

// LayerDir returns the host directory that a CRI container writes to outside of its
// volumes. With the native snapshotter it has the image's files, too. It is empty if
// containerd does not say, as with a snapshotter without directories. It does not change
// while the container exists. LayerDir blocks for two calls.
func (c Containerd) LayerDir(ctx context.Context, id string) (string, error) {
	ctx = withNamespace(ctx, criNamespace)
	r, err := containersapi.NewContainersClient(c.Conn).Get(ctx, &containersapi.GetContainerRequest{ID: id})
	if err != nil {
		return "", fmt.Errorf("find containerd's record of container %s: %w", id, err)
	}
	mounts, err := snapshotsapi.NewSnapshotsClient(c.Conn).Mounts(ctx, &snapshotsapi.MountsRequest{
		Snapshotter: r.Container.Snapshotter, Key: r.Container.SnapshotKey,
	})
	if err != nil {
		return "", fmt.Errorf("find the snapshot of container %s: %w", id, err)
	}
	return writableDir(mounts.Mounts), nil
}

// writableDir returns where writes below the mounts end up; empty if the mounts do not say.
func writableDir(mounts []*types.Mount) string {
	for _, m := range mounts {
		switch m.Type {
		case "overlay":
			for _, option := range m.Options {
				if dir, upper := strings.CutPrefix(option, "upperdir="); upper {
					return dir
				}
			}
		case "bind": // of a snapshotter without layers, or of a snapshot without any below
			return m.Source
		}
	}
	return ""
}
