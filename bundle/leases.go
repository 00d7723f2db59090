package bundle

import (
	"context"
	"errors"
	"fmt"
	"time"

	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
)

// leaseExpires is the label of a lease that a call of containerd's own client takes while
// it is at work, for a day at most (containerd's pkg/gc and client.WithLease). CRI's lease
// of a sandbox does not have it.
const leaseExpires = "containerd.io/gc.expire"

// DeleteStaleLeases deletes the leases of the calls that an earlier containerd was working on, and
// returns how many. A killed containerd cannot give them back. Until they expire a day
// later, they hold what the call had made: a container's snapshot. began is the start of
// this containerd's process. If it deletes any, it blocks until containerd has collected
// what they held.
func (c Containerd) DeleteStaleLeases(ctx context.Context, began time.Time) (deleted int, err error) {
	r, err := leasesapi.NewLeasesClient(c.Conn).List(withNamespace(ctx, criNamespace), &leasesapi.ListRequest{})
	if err != nil {
		return 0, fmt.Errorf("list containerd's leases: %w", err)
	}
	var stale []string
	for _, l := range r.Leases {
		if _, ofCall := l.Labels[leaseExpires]; ofCall && l.CreatedAt.AsTime().Before(began) {
			stale = append(stale, l.ID)
		}
	}
	return c.deleteLeases(ctx, stale)
}

// deleteLeases deletes leases, and blocks until containerd has collected what they held.
func (c Containerd) deleteLeases(ctx context.Context, ids []string) (deleted int, err error) {
	ctx = withNamespace(ctx, criNamespace)
	client := leasesapi.NewLeasesClient(c.Conn)
	var errs []error
	for i, id := range ids {
		last := i == len(ids)-1 // one collection does for all
		if _, err := client.Delete(ctx, &leasesapi.DeleteRequest{ID: id, Sync: last}); unlessNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete the lease %s of an interrupted call: %w", id, err))
			continue
		}
		deleted++
	}
	return deleted, errors.Join(errs...)
}
