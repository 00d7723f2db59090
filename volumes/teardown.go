package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"podd/internal/pod"
	"podd/internal/wipe"
	"podd/podfs"
)

// TearDown unmounts what is mounted below the pod's directory and deletes the
// directory. No container of the pod may be running; the pod need not be known, and a
// missing directory is success. A setup in progress is cancelled.
//
// What cannot be unmounted or deleted does not block the pod: it becomes a
// PendingUnmount, TearDown returns nil, and Run retries it. It returns an error only
// if ctx has ended or the UID is invalid: then retrying is up to the caller.
func (m *Mounter) TearDown(ctx context.Context, uid pod.UID) error {
	if err := safeName("pod UID", string(uid)); err != nil {
		return err
	}
	err := m.lockAndRemove(ctx, uid)
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("tear down volumes: %w", err)
	}
	m.mu.Lock()
	m.markNotReadyLocked(uid)
	m.updateState(uid, func(p *podVolumes) { p.released, p.terminating = false, false })
	m.mu.Unlock()
	m.recordRemoval(uid, err)
	return nil
}

// Remove is TearDown without retries: if something cannot be unmounted or deleted, the
// error names the volume and the process that holds it.
func (m *Mounter) Remove(ctx context.Context, uid pod.UID) error {
	if err := safeName("pod UID", string(uid)); err != nil {
		return err
	}
	err := m.lockAndRemove(ctx, uid)
	if err == nil || ctx.Err() != nil {
		return err
	}
	what := "the directory of pod " + string(uid)
	if volume := m.dirs.VolumeOf(uid, blockingMount(err)); volume != "" {
		what = fmt.Sprintf("volume %q of pod %s", volume, uid)
	}
	why, _ := explainRemovalError(err, longSearchTimeout)
	return fmt.Errorf("%s is kept: %s", what, why)
}

// Release unmounts what is mounted below the pod's directory, and removes volume
// directories that are empty afterwards, such as those of tmpfs mounts. Call it for a
// completed pod that is still desired, to free its memory. Data on disk stays. TearDown
// handles what cannot be unmounted now. No container of the pod may run, now or later.
func (m *Mounter) Release(ctx context.Context, uid pod.UID) error {
	if err := safeName("pod UID", string(uid)); err != nil {
		return err
	}
	unlock, err := m.cancelAndLock(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	m.mu.Lock()
	m.updateState(uid, func(p *podVolumes) { p.released = true })
	m.mu.Unlock()
	if !m.mayBeMounted(uid) {
		return nil
	}
	m.mu.Lock()
	m.markNotReadyLocked(uid)
	m.mu.Unlock()
	if err := m.unmount(ctx, uid); err != nil {
		return err
	}
	return m.removeEmptyVolumes(uid)
}

// removeEmptyVolumes removes the directories of the pod's volumes that have no content. One that
// is in use, or that has content, stays.
func (m *Mounter) removeEmptyVolumes(uid pod.UID) error {
	var errs []error
	for i := range m.kinds {
		dir := m.dirs.Volume(uid, m.kinds[i].plugin, "")
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			err := unix.Rmdir(path)
			switch {
			case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY):
			default:
				errs = append(errs, &fs.PathError{Op: "rmdir", Path: path, Err: err})
			}
		}
	}
	return errors.Join(errs...)
}

// Discard is Release and also deletes the pod's emptyDirs: for an evicted pod, to
// reclaim its disk space. It deletes nothing that is mounted there.
func (m *Mounter) Discard(ctx context.Context, uid pod.UID) error {
	if err := m.Release(ctx, uid); err != nil {
		return err
	}
	unlock, err := m.cancelAndLock(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	scratch := m.dirs.Volume(uid, emptyDirPlugin, "")
	return wipe.Tree(ctx, filepath.Dir(scratch), filepath.Base(scratch))
}

// lockAndRemove cancels the setup in progress, takes the pod's lock, and removes the
// pod's volumes and directory.
func (m *Mounter) lockAndRemove(ctx context.Context, uid pod.UID) error {
	unlock, err := m.cancelAndLock(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	return m.remove(ctx, uid)
}

// remove does the work of TearDown; the pod's lock is held.
func (m *Mounter) remove(ctx context.Context, uid pod.UID) error {
	start := time.Now()
	if _, err := os.Lstat(m.dirs.Pod(uid)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if m.mayBeMounted(uid) {
		if err := m.unmount(ctx, uid); err != nil {
			return err
		}
	}
	err := wipe.Tree(ctx, m.dirs.Pods(), string(uid))
	var crossing *wipe.MountError
	if errors.As(err, &crossing) {
		if err = m.unmountBelow(ctx, m.dirs.Pod(uid), nil); err == nil {
			err = wipe.Tree(ctx, m.dirs.Pods(), string(uid))
		}
	}
	m.observeUnmounts(uid, start, err)
	return err
}

// unmount has the external drivers unmount their volumes, unmounts everything else
// below the pod's directory, and then calls tearDown of each kind.
func (m *Mounter) unmount(ctx context.Context, uid pod.UID) error {
	if err := m.unmountSubPaths(ctx, uid); err != nil {
		return err
	}
	kept, err := m.unmountExternal(ctx, uid)
	if err := errors.Join(err, m.unmountBelow(ctx, m.dirs.Pod(uid), kept)); err != nil {
		return err
	}
	var errs []error
	for i := range m.kinds {
		entries, err := os.ReadDir(m.dirs.Volume(uid, m.kinds[i].plugin, ""))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if err := m.kinds[i].tearDown(ctx, m.dirs.Volume(uid, m.kinds[i].plugin, e.Name())); err != nil {
				errs = append(errs, fmt.Errorf("tear down volume %q: %w", e.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// mayBeMounted saves reading the mount table, which costs more the more mounts the node
// has. All mounts are in one of these two directories; wipe.Tree stops at any other.
func (m *Mounter) mayBeMounted(uid pod.UID) bool {
	return exists(m.dirs.Volumes(uid)) || exists(m.dirs.SubPaths(uid))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (m *Mounter) observeUnmounts(uid pod.UID, start time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, plugin := range m.stateOf(uid).ready {
		m.metrics.observe(plugin, "volume_unmount", start, err)
	}
}

// unmountError is an unmount(2) that failed.
type unmountError struct {
	path string
	err  error
}

func (e *unmountError) Error() string { return fmt.Sprintf("unmount %s: %v", e.path, e.err) }
func (e *unmountError) Unwrap() error { return e.err }

// unmountBelow unmounts until the mount table shows nothing at or below dir except
// kept. It reads the table again each time: an unmount may remove other mounts
// (propagation), and one that failed may succeed after another.
func (m *Mounter) unmountBelow(ctx context.Context, dir string, kept []string) error {
	for before := -1; ; {
		points, err := mountsBelow(dir)
		if err != nil {
			return err
		}
		points = slices.DeleteFunc(points, func(point string) bool {
			return slices.ContainsFunc(kept, func(dir string) bool { return point == dir || strings.HasPrefix(point, dir+"/") })
		})
		if len(points) == 0 {
			return nil
		}
		if before == len(points) {
			return m.unmountAll(ctx, points)
		}
		before = len(points)
		if err := m.unmountAll(ctx, points); ctx.Err() != nil {
			return err
		}
	}
}

func (m *Mounter) unmountAll(ctx context.Context, points []string) error {
	var errs []error
	for _, point := range points {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := m.unmounter.unmount(ctx, point, m.isNFSMount(point))
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
		case errors.Is(err, unix.EINVAL): // no longer a mount: removed together with another
		default:
			errs = append(errs, &unmountError{point, err})
		}
	}
	return errors.Join(errs...)
}

// mountsBelow lists the mount points at and below dir in the order in which they must be
// unmounted: subPath binds first, then the rest, each newest first.
func mountsBelow(dir string) ([]string, error) {
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return i.Mountpoint != dir && !strings.HasPrefix(i.Mountpoint, dir+"/"), false
	})
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	points := make([]string, len(infos))
	for i, info := range infos {
		points[len(infos)-1-i] = info.Mountpoint
	}
	first := podfs.SubPathsIn(dir) + "/"
	sort.SliceStable(points, func(a, b int) bool {
		return strings.HasPrefix(points[a], first) && !strings.HasPrefix(points[b], first)
	})
	return points, nil
}
