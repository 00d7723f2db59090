package volumes

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// unmountTimeout is how long an unmount may take; after that, its server is considered
// dead. Upstream's unMountTimeout is a minute, which blocks its pod.
const unmountTimeout = 10 * time.Second

// errNoAnswer is an unmount that does not return.
var errNoAnswer = errors.New("the unmount does not return: its server or disk does not respond")

// unmounter calls unmount(2), which may hang in the kernel. A call that hangs occupies a
// thread, so it is not repeated while it does.
type unmounter struct {
	call    func(point string, flags int) error
	timeout time.Duration

	mu         sync.Mutex
	inProgress map[unmountCall]bool // guarded by mu
}

type unmountCall struct {
	point       string
	flags       int
	keepMounted bool // the mount stays
}

func newUnmounts() *unmounter {
	return &unmounter{call: unix.Unmount, timeout: unmountTimeout, inProgress: map[unmountCall]bool{}}
}

// unmount unmounts what is mounted at a point. If that takes too long and force is set, it
// retries with MNT_FORCE, as upstream does. That aborts requests that wait for the server;
// only network and FUSE file systems support it. It aborts requests of the whole file
// system, including those through its other mounts. Therefore use force only for file
// systems that podd itself has mounted, not for bind mounts of the host's directories.
func (u *unmounter) unmount(ctx context.Context, point string, force bool) error {
	err := u.attempt(ctx, unmountCall{point: point})
	if !force || !errors.Is(err, errNoAnswer) {
		return err
	}
	if forced := u.attempt(ctx, unmountCall{point: point, flags: unix.MNT_FORCE}); !errors.Is(forced, errNoAnswer) {
		return forced
	}
	return err
}

// abort aborts the requests that wait for the server behind the mount at a point. The file
// system stays mounted, so abort can be repeated. Like a forced unmount, use it only for
// file systems that podd itself has mounted.
func (u *unmounter) abort(ctx context.Context, point string) error {
	err := u.attempt(ctx, unmountCall{point: point, flags: unix.MNT_FORCE, keepMounted: true})
	if errors.Is(err, unix.EBUSY) { // after the requests were aborted
		return nil
	}
	return err
}

// attempt calls unmount(2) once, unless an earlier call still hangs. Its error is the
// kernel's, errNoAnswer or ctx's cause.
func (u *unmounter) attempt(ctx context.Context, at unmountCall) error {
	if !u.begin(at) {
		return errNoAnswer
	}
	done := make(chan error, 1)
	go func() {
		err := u.callUnmount(at)
		u.end(at) // before done: the caller may then unmount the next mount at this point
		done <- err
	}()
	late := time.NewTimer(u.timeout)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return errNoAnswer
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// callUnmount calls unmount(2). To keep the mount, it holds the mount point open meanwhile, so that
// the mount is busy, in a way (O_PATH) that asks no server.
func (u *unmounter) callUnmount(at unmountCall) error {
	if at.keepMounted {
		open, err := unix.Open(at.point, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(open)
	}
	return u.call(at.point, at.flags|unix.UMOUNT_NOFOLLOW)
}

func (u *unmounter) begin(at unmountCall) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.inProgress[at] {
		return false
	}
	u.inProgress[at] = true
	return true
}

func (u *unmounter) end(at unmountCall) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.inProgress, at)
}
