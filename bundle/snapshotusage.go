package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
)

// DiskUsage is how much of a disk snapshots use.
type DiskUsage struct{ Bytes, Inodes int64 }

func (u DiskUsage) plus(v DiskUsage) DiskUsage {
	return DiskUsage{u.Bytes + v.Bytes, u.Inodes + v.Inodes}
}

// SnapshotUsage counts what one snapshotter of containerd keeps for CRI: unpacked images and
// writable layers. ImageFsInfo returns the same sum, but as old as containerd's last
// collection: containerd collects at its start, when a new one keeps nothing yet, and then
// once every stats_collect_period, which is ten minutes in the bundle.
//
// Only one Measure may run at a time.
type SnapshotUsage struct {
	Snapshotter string
	// committed are the snapshots that nobody writes to, by name: each is queried only once.
	committed map[string]DiskUsage
}

// Measure queries one list and the usage of each snapshot that is new or written to. For a
// snapshot that is written to, containerd walks the directory; it knows the others' usage.
func (u *SnapshotUsage) Measure(ctx context.Context, c Containerd) (DiskUsage, error) {
	ctx = withNamespace(ctx, criNamespace)
	client := snapshotsapi.NewSnapshotsClient(c.Conn)
	all, err := u.list(ctx, client)
	if err != nil {
		return DiskUsage{}, fmt.Errorf("list the snapshots of %s: %w", u.Snapshotter, err)
	}
	committed := map[string]DiskUsage{}
	var sum DiskUsage
	for _, s := range all {
		used, known := u.committed[s.Name]
		if !known {
			r, err := client.Usage(ctx, &snapshotsapi.UsageRequest{Snapshotter: u.Snapshotter, Key: s.Name})
			if err := unlessNotFound(err); err != nil {
				return DiskUsage{}, fmt.Errorf("read the usage of snapshot %s: %w", s.Name, err)
			}
			used = DiskUsage{r.GetSize(), r.GetInodes()} // of one that is gone: nothing
		}
		if s.Kind == snapshotsapi.Kind_COMMITTED {
			committed[s.Name] = used
		}
		sum = sum.plus(used)
	}
	u.committed = committed
	return sum, nil
}

func (u *SnapshotUsage) list(ctx context.Context, client snapshotsapi.SnapshotsClient) ([]*snapshotsapi.Info, error) {
	stream, err := client.List(ctx, &snapshotsapi.ListSnapshotsRequest{Snapshotter: u.Snapshotter})
	if err != nil {
		return nil, err
	}
	var all []*snapshotsapi.Info
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r.Info...)
	}
}
