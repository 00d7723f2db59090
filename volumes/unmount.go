package volumes

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// unmountTime is how long an unmount may take (upstream's unMountTimeout is a
// minute, in which its pod can do nothing else). Then a server is taken for gone.
const unmountTime = 10 * time.Second

// errNoAnswer is an unmount that does not come back.
var errNoAnswer = errors.New("the unmount does not come back: its server, or its disk, does not answer")

// unmounts are calls of unmount(2), each of which may hang in the kernel: one that
// does keeps a thread, and is not made again meanwhile.
type unmounts struct {
	call    func(point string, flags int) error
	timeout time.Duration

	mu    sync.Mutex
	under map[attempt]bool // way; guarded by mu
}

type attempt struct {
	point string
	flags int
}

func newUnmounts() *unmounts {
	return &unmounts{call: unix.Unmount, timeout: unmountTime, under: map[attempt]bool{}}
}

// unmount unmounts what is mounted at a point. Where that takes too long, and force is
// allowed, the kernel is told to give up what waits for the server (MNT_FORCE, which
// only network and FUSE file systems heed, and which upstream uses then, too). That
// breaks off requests of the whole file system, also through other mounts of it: it
// is for what podd itself has mounted, not for binds of somebody's directories.
func (u *unmounts) unmount(ctx context.Context, point string, force bool) error {
	err := u.attempt(ctx, point, 0)
	if !force || !errors.Is(err, errNoAnswer) {
		return err
	}
	if forced := u.attempt(ctx, point, unix.MNT_FORCE); !errors.Is(forced, errNoAnswer) {
		return forced
	}
	return err
}

// attempt calls unmount(2) once, unless an earlier call hangs. Its error is the
// kernel's, errNoAnswer or the cause of ctx.
func (u *unmounts) attempt(ctx context.Context, point string, flags int) error {
	at := attempt{point, flags}
	if !u.begin(at) {
		return errNoAnswer
	}
	done := make(chan error, 1)
	go func() {
		err := u.call(point, flags|unix.UMOUNT_NOFOLLOW)
		u.end(at) // first: who hears of it may unmount the next mount at this point
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

func (u *unmounts) begin(at attempt) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.under[at] {
		return false
	}
	u.under[at] = true
	return true
}

func (u *unmounts) end(at attempt) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.under, at)
}
