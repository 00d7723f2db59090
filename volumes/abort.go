package volumes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"podd/internal/pod"
	"podd/internal/wake"
)

const (
	// probeTimeout is how long a server may take to answer a probe; after that, it is
	// considered dead.
	probeTimeout = 10 * time.Second
	// probePeriod is the time between two probes of a server that answers.
	probePeriod = 10 * time.Second
	// abortPeriod is the time between two aborts. A process makes several requests before
	// it exits, one after another: write, commit, close.
	abortPeriod = 2 * time.Second
	// pauseAfterAbort follows a probe that was aborted with the other requests. The next
	// one has the rest of abortPeriod to be answered.
	pauseAfterAbort = abortPeriod / 2
)

// errAborted is the error of a probe that this podd or somebody else (umount -f)
// aborted: the kernel's ERESTARTSYS, which reaches a process in this case only.
const errAborted = unix.Errno(512)

// AbortRequests is called while a pod is being ended and one of its processes was killed
// but does not exit. The process may be waiting in the kernel, for ever, for the server of
// an NFS volume that no longer responds: a process that exits closes its files, which
// writes what is in them, and no signal ends that. While the server of one of the pod's NFS
// volumes does not answer, AbortRequests aborts all requests that wait for it. These
// include the requests of other pods, since they share a connection. The data of the
// aborted writes is lost. When it starts to abort, it calls tell with the reason, once for
// each volume.
//
// It blocks until ctx ends, or returns at once if the pod has no such volume. The caller
// should end ctx as soon as the process has exited. Calls for one pod wait for each other;
// TearDown, Release and Discard wait for them briefly.
func (m *Mounter) AbortRequests(ctx context.Context, uid pod.UID, tell func(why string)) {
	unlock, err := m.locks.Lock(ctx, lockKey{pod: uid, aborts: true})
	if err != nil {
		return
	}
	defer unlock()
	mounts, err := m.nfsMounts(uid)
	if err != nil {
		m.log.Warn("cannot look for servers that do not respond: a process of the pod may wait for one", "uid", uid, "error", err)
		return
	}
	var all sync.WaitGroup
	for _, at := range mounts {
		all.Go(func() { m.abortWhileDead(ctx, at, tell) })
	}
	all.Wait()
}

// nfsMounts returns the mounts of the pod's NFS volumes, including those of claims.
func (m *Mounter) nfsMounts(uid pod.UID) ([]*mountinfo.Info, error) {
	dir := m.dirs.Volume(uid, nfsPlugin, "")
	mounts, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) { return filepath.Dir(i.Mountpoint) != dir, false })
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return mounts, nil
}

// abortWhileDead probes a server again and again, and aborts the requests that wait for it
// while it does not answer, until ctx ends.
func (m *Mounter) abortWhileDead(ctx context.Context, at *mountinfo.Info, tell func(why string)) {
	var probe <-chan error // not answered yet; nil for none
	silent := 0            // ticks since the last answer
	dead, told := false, false
	// Counting ticks, a time in which podd itself was stopped is no more than one tick.
	tick := time.NewTicker(abortPeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		if probe == nil {
			probe = m.probeServer(at.Mountpoint)
		}
		select {
		case err := <-probe:
			probe = nil
			if errors.Is(err, errAborted) {
				wake.Sleep(ctx, pauseAfterAbort)
				continue
			}
			wake.Sleep(ctx, probePeriod)
			silent, dead = 0, false
			tick.Reset(abortPeriod)
		case <-tick.C:
			if silent++; silent < int(probeTimeout/abortPeriod) {
				continue
			}
			if dead = true; !told {
				told = true
				tell(fmt.Sprintf("the server of NFS volume %q (%s) does not respond: the requests that wait for it are aborted, and data that was not written yet is lost",
					filepath.Base(at.Mountpoint), at.Source))
			}
			m.abort(ctx, at.Mountpoint)
		case <-ctx.Done():
		}
	}
	if dead && probe != nil { // it would wait for the server for ever
		m.abort(ctx, at.Mountpoint)
	}
}

// abort aborts the requests that wait for a server, even after ctx has ended. Afterwards
// the mount is not busy.
func (m *Mounter) abort(ctx context.Context, point string) {
	within, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), hangTimeout, errHangTimeout)
	defer cancel()
	if err := m.unmounter.abort(within, point); err != nil {
		m.log.Warn("cannot abort the requests that wait for a server", "mount", point, "error", err)
	}
}

// probeServer asks how full the file system mounted at a point is. NFS asks its server each
// time. The answer may never come. The probe waits on a copy of the mount, so the mount
// itself can be unmounted meanwhile.
func probeServer(point string) <-chan error {
	answer := make(chan error, 1)
	go func() {
		answer <- func() error {
			copied, err := unix.OpenTree(unix.AT_FDCWD, point, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
			if err != nil {
				return err
			}
			defer unix.Close(copied)
			var full unix.Statfs_t
			return unix.Fstatfs(copied, &full)
		}()
	}()
	return answer
}
