package bundle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podd/internal/wipe"
)

const taskPlugin = "containerd/io.containerd.runtime.v2.task"

// removeBundles removes the directories of containers, with the mounts of their root filesystems,
// here and (the work directory) below the root directory.
func (c *shimCollection) removeBundles(ctx context.Context) error {
	return errors.Join(c.removeHalfDeleted(ctx), c.forEachLeftover(ctx, filepath.Join(c.s.StateDir, taskPlugin), func(namespace, id, dir string, r Record) error {
		if r.managed() {
			return nil
		}
		// dir last, because the next collection finds it.
		return c.remove(ctx, id, filepath.Join(c.s.RootDir, taskPlugin, namespace, id), dir)
	}))
}

// removeHalfDeleted removes directories that containerd has hidden and not deleted. containerd
// renames a directory before it deletes it, tries once, and never looks at it again
// (core/runtime/v2, atomicDelete). Some stay, because containerd was killed meanwhile, or
// because a shim mounted something there after its caller had gone.
func (c *shimCollection) removeHalfDeleted(ctx context.Context) error {
	var errs []error
	for _, base := range []string{c.s.StateDir, c.s.RootDir} {
		paths, err := filepath.Glob(filepath.Join(base, taskPlugin, "*", ".*"))
		errs = append(errs, err)
		for _, path := range paths {
			if since, ok := hiddenSince(path); ok && since.Before(latest(c.criteria.RuntimeBegan, c.criteria.UnownedBefore)) {
				errs = append(errs, c.remove(ctx, strings.TrimPrefix(filepath.Base(path), "."), path))
			}
		}
	}
	return errors.Join(errs...)
}

// hiddenSince returns the change time of a directory, which its rename set. ok is false if
// the directory does not exist.
func hiddenSince(path string) (since time.Time, ok bool) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return time.Time{}, false
	}
	return time.Unix(st.Ctim.Unix()), true
}

// remove removes the directories of a lost container, with everything mounted there.
func (c *shimCollection) remove(ctx context.Context, id string, dirs ...string) error {
	for _, dir := range dirs {
		err := unmountBelow(dir)
		if err == nil {
			err = wipe.Tree(ctx, filepath.Dir(dir), filepath.Base(dir))
		}
		if err != nil {
			return fmt.Errorf("remove directory of lost container %s: %w", id, err)
		}
	}
	c.done.Directories++
	return nil
}

// forEachLeftover calls take with every dir/NAMESPACE/ID that is old enough.
func (c *shimCollection) forEachLeftover(ctx context.Context, dir string, take func(namespace, id, path string, r Record) error) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		info, err := os.Lstat(path)
		namespace, id := filepath.Base(filepath.Dir(path)), filepath.Base(path)
		if err != nil || !info.IsDir() || !c.criteria.mayBeLeftover(id, info.ModTime()) || strings.HasPrefix(id, ".") { // see removeHalfDeleted
			continue
		}
		r, err := c.record(ctx, namespace, id)
		if err == nil && c.criteria.isLeftover(info.ModTime(), r) {
			err = take(namespace, id, path, r)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
