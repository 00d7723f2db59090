package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
)

// Used is how much of a disk snapshots use.
type Used struct{ Bytes, Inodes int64 }

func (u Used) plus(v Used) Used { return Used{u.Bytes + v.Bytes, u.Inodes + v.Inodes} }

// Unpacked counts what one snapshotter of containerd keeps for CRI: unpacked images and
// writable layers. ImageFsInfo returns the same sum, but as old as containerd's last
// collection: containerd collects at its start, when a new one keeps nothing yet, and then
// once every stats_collect_period, which is ten minutes in the bundle.
//
// Only one Measure may run at a time.
type Unpacked struct {
	Snapshotter string
	// settled are the snapshots that nobody writes to, by name: each is queried only once.
	settled map[string]Used
}

// Measure queries one list and the usage of each snapshot that is new or written to. For a
// snapshot that is written to, containerd walks the directory; it knows the others' usage.
func (u *Unpacked) Measure(ctx context.Context, c Containerd) (Used, error) {
	ctx = withNamespace(ctx, criNamespace)
	client := snapshotsapi.NewSnapshotsClient(c.Conn)
	all, err := u.list(ctx, client)
	if err != nil {
		return Used{}, fmt.Errorf("list the snapshots of %s: %w", u.Snapshotter, err)
	}
	settled := map[string]Used{}
	var sum Used
	for _, s := range all {
		used, known := u.settled[s.Name]
		if !known {
			r, err := client.Usage(ctx, &snapshotsapi.UsageRequest{Snapshotter: u.Snapshotter, Key: s.Name})
			if err := unlessNotFound(err); err != nil {
				return Used{}, fmt.Errorf("read the usage of snapshot %s: %w", s.Name, err)
			}
			used = Used{r.GetSize(), r.GetInodes()} // of one that is gone: nothing
		}
		if s.Kind == snapshotsapi.Kind_COMMITTED {
			settled[s.Name] = used
		}
		sum = sum.plus(used)
	}
	u.settled = settled
	return sum, nil
}

func (u *Unpacked) list(ctx context.Context, client snapshotsapi.SnapshotsClient) ([]*snapshotsapi.Info, error) {
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
