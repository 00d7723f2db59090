package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"podd/internal/pod"
)

// runningTearDown is a teardown in progress.
type runningTearDown struct {
	done      chan struct{} // closed at its end
	err       error         // valid once done is closed
	abandoned bool          // guarded by Volumes.mu: TearDown has stopped waiting for it
}

// TearDown makes the driver unpublish the volume of a directory, and unstage it if no other
// pod uses it. The pod need not be known. It waits for the driver for 10 s at most, or
// until ctx ends. The work then continues in the background, and its success wakes the pod
// (Waker), as does the registration of a missing driver. Calling it again joins a teardown
// in progress. Success means that the driver has left nothing behind; after an error, nothing
// below the directory may be unmounted or deleted.
func (v *Volumes) TearDown(ctx context.Context, dir string) error {
	v.unfollow(dir)
	o := v.joinTearDown(ctx, dir)
	moment := time.NewTimer(v.tearDownWait)
	defer moment.Stop()
	select {
	case <-o.done:
		return o.err
	case <-moment.C:
	case <-ctx.Done():
	}
	v.mu.Lock()
	o.abandoned = true
	v.mu.Unlock()
	select {
	case <-o.done:
		return o.err
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%s: the volume's driver has not unpublished it yet: the call continues", pluginName)
}

// joinTearDown returns the teardown in progress, or starts one.
func (v *Volumes) joinTearDown(ctx context.Context, dir string) *runningTearDown {
	v.mu.Lock()
	defer v.mu.Unlock()
	if o := v.tearDowns[dir]; o != nil {
		o.abandoned = false
		return o
	}
	o := &runningTearDown{done: make(chan struct{})}
	v.tearDowns[dir] = o
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.timeout)
		defer cancel()
		err := v.doTearDown(ctx, dir)
		v.mu.Lock()
		delete(v.tearDowns, dir)
		o.err = err
		close(o.done)
		wake := o.abandoned && err == nil
		v.mu.Unlock()
		if wake {
			v.waker.Changed(uidOf(dir))
		}
	}()
	return o
}

// doTearDown unpublishes the volume, unstages it if this was the last user, and removes the
// record.
func (v *Volumes) doTearDown(ctx context.Context, dir string) error {
	v.stopAwaitingLabel(uidOf(dir))
	r, err := readRecord(dir)
	if errors.Is(err, fs.ErrNotExist) { // its driver was never called
		return v.leftoverError(removeEmpty(filepath.Join(dir, "mount")), "an unknown driver")
	}
	if err != nil {
		return err
	}
	p := pathsOf(v.root, dir, r)
	unlock, err := v.locks.Lock(ctx, r.key())
	if err != nil {
		return fmt.Errorf("%s: another call for the volume is still in progress: %w", pluginName, err)
	}
	defer unlock()
	staged, err := v.isLastUser(r, p)
	if err != nil {
		return err
	}
	if staged || r.State != stateIdle {
		if err := v.unpublish(ctx, r, p, staged); err != nil {
			return err
		}
	}
	if r.Block { // fails if other pods have devices there
		_ = os.Remove(filepath.Dir(p.target))
	}
	v.drivers.removeWaiting(r.DriverName, uidOf(dir))
	err = removeRecord(dir)
	if err == nil {
		v.unmarkInUse(r, dir)
		v.wakeLabelWaiting(r)
	}
	return err
}

// isLastUser says whether the volume is staged and no other pod uses it.
func (v *Volumes) isLastUser(r *record, p paths) (bool, error) {
	if !r.persistent() {
		return false, nil
	}
	if _, err := readRecord(p.stagingRecordDir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	users, err := v.otherUsers(r, p.dir)
	return err == nil && len(users) == 0, err
}

// unpublish makes the driver unpublish the volume, and unstage it if staged is set.
func (v *Volumes) unpublish(ctx context.Context, r *record, p paths, staged bool) error {
	d, err := v.drivers.driver(r.DriverName, uidOf(p.dir))
	if err != nil {
		return fmt.Errorf("%s: Unmounter.TearDownAt failed to get CSI client: %w", pluginName, err)
	}
	s, err := v.openSession(ctx, d)
	if err != nil {
		v.drivers.addWaiting(r.DriverName, uidOf(p.dir))
		return fmt.Errorf("%s: Unmounter.TearDownAt failed: %w", pluginName, err)
	}
	defer s.close()
	if r.State != stateIdle {
		_, err = call(ctx, s, s.node.NodeUnpublishVolume, &csipb.NodeUnpublishVolumeRequest{VolumeId: r.VolumeHandle, TargetPath: p.target})
		if err != nil {
			return fmt.Errorf("%s: Unmounter.TearDownAt failed: %w", pluginName, err)
		}
	}
	if err := v.leftoverError(removeEmpty(p.target), r.DriverName); err != nil {
		return err
	}
	if !staged {
		return nil
	}
	return v.unstage(ctx, s, r, p)
}

// unstage makes the driver unstage a volume that no pod uses. The volume's lock is held.
func (v *Volumes) unstage(ctx context.Context, s *session, r *record, p paths) error {
	if s.capabilities[csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
		_, err := call(ctx, s, s.node.NodeUnstageVolume, &csipb.NodeUnstageVolumeRequest{VolumeId: r.VolumeHandle, StagingTargetPath: p.staging})
		if err != nil {
			return fmt.Errorf("%s: attacher.UnmountDevice failed: %w", pluginName, err)
		}
	}
	if err := v.leftoverError(removeEmpty(p.staging), r.DriverName); err != nil {
		return err
	}
	if err := removeRecord(p.stagingRecordDir); err != nil {
		return err
	}
	v.unmarkInUse(r, p.stagingRecordDir)
	if !r.Block {
		return nil
	}
	return removeEmpty(filepath.Dir(p.stagingRecordDir))
}

// leftoverError wraps the error for a path that the driver should have left empty.
func (v *Volumes) leftoverError(err error, driver string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s has left something behind: %w: unmount it, or move it away, by hand", pluginName, driver, err)
}

// unstageUnused makes a driver unstage volumes that no pod uses. A podd that is killed
// between unpublish and unstage leaves such volumes.
func (v *Volumes) unstageUnused(ctx context.Context, driver string) {
	var dirs []string
	for _, pattern := range v.stagedRecordPatterns(driver) {
		files, _ := filepath.Glob(pattern) // fails only for a bad pattern
		for _, file := range files {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	for _, dir := range dirs {
		if err := v.unstageIfUnused(ctx, driver, dir); err != nil && ctx.Err() == nil {
			v.log.Warn("cannot unstage a volume that nobody uses: its driver is asked again when it registers", "driver", driver, "dir", dir, "error", err)
		}
	}
}

// stagedRecordPatterns returns patterns that match the records of a driver's staged volumes, among
// others.
func (v *Volumes) stagedRecordPatterns(driver string) []string {
	return []string{
		filepath.Join(v.root, "plugins", pluginName, driver, "*", recordFile),
		filepath.Join(v.root, "plugins", pluginName, "volumeDevices", "*", "data", recordFile),
	}
}

func (v *Volumes) unstageIfUnused(ctx context.Context, driver, dir string) error {
	r, err := readRecord(dir)
	if err != nil || r.DriverName != driver {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	unlock, err := v.locks.Lock(ctx, r.key())
	if err != nil {
		return err
	}
	defer unlock()
	p := pathsOf(v.root, "", r)
	if last, err := v.isLastUser(r, p); err != nil || !last {
		return err
	}
	d, err := v.drivers.driver(driver, pod.UID(""))
	if err != nil {
		return err
	}
	s, err := v.openSession(ctx, d)
	if err != nil {
		return err
	}
	defer s.close()
	return v.unstage(ctx, s, r, p)
}
