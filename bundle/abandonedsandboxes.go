package bundle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	sandboxapi "github.com/containerd/containerd/api/services/sandbox/v1"
	"github.com/containerd/containerd/api/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// abandonedSandboxes returns the IDs of sandboxes that have a record in containerd, or
// CRI's lease, but no process, and that CRI does not list. No call is at work on them.
//
// RunPodSandbox takes a lease with the sandbox's ID before it makes anything, and releases
// it last when it gives up. RemovePodSandbox releases it while CRI still lists the sandbox.
// Therefore podd lists records first, then leases, then sandboxes. A lease older than
// before could not be released either: no call takes so long. (See containerd's
// internal/cri/server and its podsandbox. If a failed Start cannot delete its container's
// record, it forgets the container, and then the sandbox is removed without it.
// RemovePodSandbox deletes its record of the sandbox last, after CRI has forgotten the
// sandbox.)
func (c Containerd) abandonedSandboxes(ctx context.Context, before time.Time) ([]string, error) {
	listed, err := c.listedSandboxes(ctx) // these are not abandoned, whatever happens to them meanwhile
	if err != nil {
		return nil, err
	}
	left, err := c.sandboxRecords(ctx, listed)
	if err != nil {
		return nil, err
	}
	leases, err := c.sandboxLeases(ctx)
	if err != nil {
		return nil, err
	}
	for id, taken := range leases {
		if taken.Before(before) {
			left[id] = true
		} else {
			delete(left, id)
		}
	}
	if listed, err = c.listedSandboxes(ctx); err != nil {
		return nil, err
	}
	for _, id := range listed {
		delete(left, id)
	}
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(left)) {
		known, err := c.Record(ctx, criNamespace, id)
		if err != nil {
			return ids, fmt.Errorf("ask containerd for %s: %w", id, err)
		}
		if known.Unlisted && !known.Task {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// listedSandboxes returns the IDs of the sandboxes that CRI lists.
func (c Containerd) listedSandboxes(ctx context.Context) ([]string, error) {
	r, err := runtimeapi.NewRuntimeServiceClient(c.Conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	ids := make([]string, len(r.Items))
	for i, sandbox := range r.Items {
		ids[i] = sandbox.Id
	}
	return ids, nil
}

// sandboxRecords returns the IDs of CRI's sandboxes, except these, for which containerd has
// a record: of the sandbox itself, or of the container that holds its namespaces.
func (c Containerd) sandboxRecords(ctx context.Context, except []string) (map[string]bool, error) {
	boxes, err := c.sandboxes(ctx, except)
	if err != nil {
		return nil, err
	}
	holders, err := c.containerIDs(ctx, "sandbox", except)
	if err != nil {
		return nil, fmt.Errorf("list the containers of containerd's sandboxes: %w", err)
	}
	ids := map[string]bool{}
	for _, box := range boxes {
		// CRI's own, which it notes there from the start (podsandbox.MetadataKey).
		if _, byCRI := box.Extensions["metadata"]; byCRI && containerID.MatchString(box.SandboxID) {
			ids[box.SandboxID] = true
		}
	}
	for _, id := range holders {
		ids[id] = true
	}
	return ids, nil
}

// sandboxLeases returns CRI's leases of sandboxes: the times when they were taken, by the
// sandbox's ID.
func (c Containerd) sandboxLeases(ctx context.Context) (map[string]time.Time, error) {
	r, err := leasesapi.NewLeasesClient(c.Conn).List(withNamespace(ctx, criNamespace), &leasesapi.ListRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containerd's leases: %w", err)
	}
	taken := map[string]time.Time{}
	for _, l := range r.Leases {
		if _, ofCall := l.Labels[leaseExpires]; !ofCall && containerID.MatchString(l.ID) {
			taken[l.ID] = l.CreatedAt.AsTime()
		}
	}
	return taken, nil
}

// sandboxes returns containerd's records of sandboxes, except these.
func (c Containerd) sandboxes(ctx context.Context, except []string) ([]*types.Sandbox, error) {
	request := &sandboxapi.StoreListRequest{}
	if len(except) > 0 {
		request.Filters = []string{filterExcept(except)}
	}
	r, err := sandboxapi.NewStoreClient(c.Conn).List(withNamespace(ctx, criNamespace), request)
	if err != nil {
		return nil, fmt.Errorf("list containerd's sandboxes: %w", err)
	}
	return r.List, nil
}

// filterExcept returns containerd's filter for everything without one of these IDs. Each record
// has a whole spec: those of a node's 58 sandboxes are some megabytes, to learn that
// nothing was left behind.
func filterExcept(ids []string) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("id!=" + id)
	}
	return b.String()
}
