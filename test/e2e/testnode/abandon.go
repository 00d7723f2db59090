package testnode

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	sandboxapi "github.com/containerd/containerd/api/services/sandbox/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// BreakOff leaves what a call leaves that containerd is killed in: a lease that ends
// after a day, and a writable layer that nothing else holds. It returns their names.
func (c *CRI) BreakOff(ctx context.Context) (lease, snapshot string, err error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	snapshot = "broke-off-" + rand.Text()
	lease, err = c.hold(ctx, snapshot)
	return lease, snapshot, err
}

// Abandon leaves what two calls of CRI's leave that fail on a full disk: a container's
// record with its writable layer, and a lease that holds one. It returns the layers'
// names, of which the first is the container's ID.
func (c *CRI) Abandon(ctx context.Context) (recorded, leased string, err error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	recorded, leased = newID(), newID()
	if err := c.recordContainer(ctx, recorded, "container"); err != nil {
		return "", "", err
	}
	_, err = c.hold(ctx, leased)
	return recorded, leased, err
}

// AbandonSandboxes leaves what calls of CRI's leave of sandboxes on a full disk: the record
// of a container that holds a sandbox's namespaces, with its writable layer, and that of a
// sandbox. atWork is what a call leaves for as long as it creates one: a sandbox's record
// and a lease.
func (c *CRI) AbandonSandboxes(ctx context.Context) (held, recorded, atWork string, err error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	held, recorded, atWork = newID(), newID(), newID()
	if err := c.recordContainer(ctx, held, "sandbox"); err != nil {
		return "", "", "", err
	}
	for _, id := range []string{recorded, atWork} {
		_, err := sandboxapi.NewStoreClient(c.conn).Create(ctx, &sandboxapi.StoreCreateRequest{Sandbox: &types.Sandbox{
			SandboxID: id, Sandboxer: "podsandbox", Runtime: &types.Sandbox_Runtime{Name: "io.containerd.runc.v2"},
			Extensions: map[string]*anypb.Any{"metadata": {
				TypeUrl: "github.com/containerd/cri/pkg/store/sandbox/Metadata", Value: []byte(`{"Version":"v1","Metadata":{}}`),
			}},
		}})
		if err != nil {
			return "", "", "", fmt.Errorf("record a sandbox: %w", err)
		}
	}
	if _, err := leasesapi.NewLeasesClient(c.conn).Create(ctx, &leasesapi.CreateRequest{ID: atWork}); err != nil {
		return "", "", "", fmt.Errorf("take a sandbox's lease: %w", err)
	}
	return held, recorded, atWork, nil
}

// GiveUp ends what AbandonSandboxes has at work, as the call would.
func (c *CRI) GiveUp(ctx context.Context, atWork string) error {
	_, err := sandboxapi.NewStoreClient(c.conn).Delete(metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io"),
		&sandboxapi.StoreDeleteRequest{SandboxID: atWork})
	return errors.Join(err, c.GiveBack(ctx, atWork))
}

// SandboxRecords are the IDs of all sandboxes of which containerd has a record, as a
// sandbox or as the container that holds its namespaces; once for each.
func (c *CRI) SandboxRecords(ctx context.Context) ([]string, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	boxes, err := sandboxapi.NewStoreClient(c.conn).List(ctx, &sandboxapi.StoreListRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the records of sandboxes: %w", err)
	}
	holders, err := containersapi.NewContainersClient(c.conn).List(ctx,
		&containersapi.ListContainersRequest{Filters: []string{`labels."io.cri-containerd.kind"==sandbox`}})
	if err != nil {
		return nil, fmt.Errorf("list the records of sandboxes' containers: %w", err)
	}
	var ids []string
	for _, box := range boxes.List {
		ids = append(ids, box.SandboxID)
	}
	for _, holder := range holders.Containers {
		ids = append(ids, holder.ID)
	}
	return ids, nil
}

// newID is one such as CRI gives containers and sandboxes.
func newID() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(rand.Text()))) }

// recordContainer makes the record of a container of a kind, and its writable layer.
func (c *CRI) recordContainer(ctx context.Context, id, kind string) error {
	_, err := containersapi.NewContainersClient(c.conn).Create(ctx, &containersapi.CreateContainerRequest{Container: &containersapi.Container{
		ID: id, Labels: map[string]string{"io.cri-containerd.kind": kind},
		Runtime:     &containersapi.Container_Runtime{Name: "io.containerd.runc.v2"},
		Snapshotter: "overlayfs", SnapshotKey: id,
	}})
	if err != nil {
		return fmt.Errorf("record a container: %w", err)
	}
	_, err = snapshotsapi.NewSnapshotsClient(c.conn).Prepare(ctx, &snapshotsapi.PrepareSnapshotRequest{Snapshotter: "overlayfs", Key: id})
	if err != nil {
		return fmt.Errorf("make a writable layer: %w", err)
	}
	return nil
}

// hold makes a writable layer that a lease of its own holds for a day.
func (c *CRI) hold(ctx context.Context, snapshot string) (lease string, err error) {
	lease = "broke-off-" + rand.Text()
	_, err = leasesapi.NewLeasesClient(c.conn).Create(ctx, &leasesapi.CreateRequest{
		ID: lease, Labels: map[string]string{"containerd.io/gc.expire": time.Now().Add(24 * time.Hour).Format(time.RFC3339)},
	})
	if err != nil {
		return "", fmt.Errorf("take a lease: %w", err)
	}
	_, err = snapshotsapi.NewSnapshotsClient(c.conn).Prepare(metadata.AppendToOutgoingContext(ctx, "containerd-lease", lease),
		&snapshotsapi.PrepareSnapshotRequest{Snapshotter: "overlayfs", Key: snapshot})
	if err != nil {
		return "", fmt.Errorf("make a writable layer: %w", err)
	}
	return lease, nil
}

// GiveBack deletes a lease and what only it holds.
func (c *CRI) GiveBack(ctx context.Context, lease string) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	if _, err := leasesapi.NewLeasesClient(c.conn).Delete(ctx, &leasesapi.DeleteRequest{ID: lease, Sync: true}); err != nil {
		return fmt.Errorf("delete lease %s: %w", lease, err)
	}
	return nil
}

// Leases are the IDs of all leases.
func (c *CRI) Leases(ctx context.Context) ([]string, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	r, err := leasesapi.NewLeasesClient(c.conn).List(ctx, &leasesapi.ListRequest{})
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	ids := make([]string, len(r.Leases))
	for i, l := range r.Leases {
		ids[i] = l.ID
	}
	return ids, nil
}

// Snapshots are the names of all writable layers, with containerd's default
// snapshotter; none of a runtime that is not containerd.
func (c *CRI) Snapshots(ctx context.Context) ([]string, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	stream, err := snapshotsapi.NewSnapshotsClient(c.conn).List(ctx, &snapshotsapi.ListSnapshotsRequest{Snapshotter: "overlayfs"})
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var names []string
	for {
		some, err := stream.Recv()
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Unimplemented {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list snapshots: %w", err)
		}
		for _, s := range some.Info {
			if s.Kind == snapshotsapi.Kind_ACTIVE {
				names = append(names, s.Name)
			}
		}
	}
}
