package bundle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// criPlugin is where CRI keeps a directory for each sandbox and container, below the root
// directory (data that outlives a boot) and below the state directory. Below the latter, it
// also has a directory with the image volumes of a sandbox that mounts any.
const criPlugin = "containerd/io.containerd.grpc.v1.cri"

// criEntry is CRI's data on disk about a sandbox or container.
type criEntry struct {
	dirs []string
	// existedAt is a time by which the object existed: that of the directory that was changed
	// first. CRI writes into the others when it is started.
	existedAt time.Time
}

// collectUnlisted deletes what is left of containers and sandboxes that CRI does not list: their
// records and CRI's own directories. CRI removes the directories when it is asked to remove
// a container, or when it starts and finds no record of it. So nobody else removes them
// before the next start.
func (c *shimCollection) collectUnlisted(ctx context.Context) error {
	all, err := c.criEntries()
	errs := []error{err}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		// Its directories are made before its record.
		if !c.criteria.Running[id] && all[id].existedAt.Before(c.criteria.Before) {
			errs = append(errs, c.removeUnlisted(ctx, id, all[id]))
		}
	}
	return errors.Join(errs...)
}

func (c *shimCollection) removeUnlisted(ctx context.Context, id string, e criEntry) error {
	r, err := c.record(ctx, criNamespace, id)
	if err != nil || r.Task || !r.Unlisted {
		return err
	}
	if r.Known {
		// A call that broke off with its client may still be at work on what this
		// containerd has begun.
		if !e.existedAt.Before(c.criteria.RuntimeBegan) {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := c.runtime.Delete(ctx, criNamespace, id); err != nil {
			return fmt.Errorf("delete records of lost container %s: %w", id, err)
		}
	}
	return c.remove(ctx, id, e.dirs...)
}

// criEntries returns CRI's entries by ID.
func (c *shimCollection) criEntries() (map[string]criEntry, error) {
	all := map[string]criEntry{}
	for _, base := range []string{c.s.RootDir, c.s.StateDir} {
		for _, kind := range []string{"containers", "sandboxes", "image-volumes"} {
			paths, err := filepath.Glob(filepath.Join(base, criPlugin, kind, "*"))
			if err != nil {
				return nil, err
			}
			for _, path := range paths {
				info, err := os.Lstat(path)
				if err != nil || !info.IsDir() {
					continue
				}
				e, ok := all[filepath.Base(path)]
				if !ok || info.ModTime().Before(e.existedAt) {
					e.existedAt = info.ModTime()
				}
				e.dirs = append(e.dirs, path)
				all[filepath.Base(path)] = e
			}
		}
	}
	return all, nil
}
