package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
)

// DeleteAbandoned deletes what failed CRI calls left in a running containerd: calls that
// create a container or sandbox, or remove a sandbox. It returns how many it deleted. A
// call that fails while the disk is full cannot write that it gives up: it deletes neither
// the record of its object nor the lease. Both hold the object's snapshot, one until
// containerd is restarted, the other for a day or for ever.
//
// inUse says whether CRI has a directory for a container or sandbox. A call makes the
// directory before record and lease and removes it after them, so no call is at work on a
// container without one. before is a time: every call that began earlier is over. Errors do
// not stop the rest.
func (c Containerd) DeleteAbandoned(ctx context.Context, inUse func(id string) bool, before time.Time) (deleted int, err error) {
	var errs []error
	records, err := c.abandonedRecords(ctx, inUse)
	errs = append(errs, err)
	boxes, err := c.abandonedSandboxes(ctx, before)
	errs = append(errs, err)
	for _, id := range slices.Concat(records, boxes) {
		if err := c.deleteRecords(withNamespace(ctx, criNamespace), id); err != nil {
			errs = append(errs, fmt.Errorf("delete the record of %s, which CRI has given up: %w", id, err))
			continue
		}
		deleted++
	}
	leases, err := c.abandonedLeases(ctx, inUse)
	errs = append(errs, err)
	ended, err := c.deleteLeases(ctx, leases)
	return deleted + ended, errors.Join(append(errs, err)...)
}

// abandonedRecords returns the IDs of CRI's containers that CRI does not list and that have
// no process. For sandboxes, see abandonedSandboxes.
func (c Containerd) abandonedRecords(ctx context.Context, inUse func(id string) bool) ([]string, error) {
	all, err := c.containerIDs(ctx, "container", nil)
	if err != nil {
		return nil, fmt.Errorf("list containerd's containers: %w", err)
	}
	var ids []string
	for _, id := range all {
		if inUse(id) {
			continue
		}
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

// containerIDs returns the IDs of all containers of a kind (container or sandbox) that CRI
// made, except these. The records come one by one: together, those of 58 pods are some
// megabytes, nearly all of it specs.
func (c Containerd) containerIDs(ctx context.Context, kind string, except []string) (ids []string, err error) {
	ctx, cancel := context.WithCancel(withNamespace(ctx, criNamespace))
	defer cancel()
	filter := `labels."io.cri-containerd.kind"==` + kind
	if len(except) > 0 {
		filter += "," + filterExcept(except)
	}
	stream, err := containersapi.NewContainersClient(c.Conn).ListStream(ctx, &containersapi.ListContainersRequest{Filters: []string{filter}})
	if err != nil {
		return nil, err
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, m.GetContainer().GetID())
	}
}

// containerID matches the names that CRI gives to a container and its snapshot. An image
// pull gives other names to what it unpacks.
var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// abandonedLeases returns the IDs of calls' leases that hold the snapshot of a container or
// sandbox.
func (c Containerd) abandonedLeases(ctx context.Context, inUse func(id string) bool) ([]string, error) {
	ctx = withNamespace(ctx, criNamespace)
	client := leasesapi.NewLeasesClient(c.Conn)
	r, err := client.List(ctx, &leasesapi.ListRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containerd's leases: %w", err)
	}
	var ids []string
	for _, l := range r.Leases {
		if _, ofCall := l.Labels[leaseExpires]; !ofCall {
			continue
		}
		held, err := client.ListResources(ctx, &leasesapi.ListResourcesRequest{ID: l.ID})
		if unlessNotFound(err) != nil {
			return ids, fmt.Errorf("list what lease %s holds: %w", l.ID, err)
		}
		for _, resource := range held.GetResources() {
			if strings.HasPrefix(resource.Type, "snapshots/") && containerID.MatchString(resource.ID) && !inUse(resource.ID) {
				ids = append(ids, l.ID)
				break
			}
		}
	}
	return ids, nil
}

// criHas reports whether CRI has a directory for the container or sandbox with this ID.
func (s *Settings) criHas(id string) bool {
	for _, base := range []string{s.RootDir, s.StateDir} {
		for _, kind := range []string{"containers", "sandboxes"} {
			if _, err := os.Lstat(filepath.Join(base, criPlugin, kind, id)); !errors.Is(err, os.ErrNotExist) {
				return true // also if that cannot be determined
			}
		}
	}
	return false
}
