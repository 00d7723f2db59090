package bundle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"podd/internal/wipe"
)

// tempDir returns where containerd, its shims and runc put temporary directories, on which
// they mount a root filesystem, or its layers with other owners (ovl-idmapped…). A process
// that is killed meanwhile leaves them. In a separate directory, podd knows that they are
// theirs.
func tempDir(stateDir string) string { return filepath.Join(stateDir, "tmp") }

// ClearTemp unmounts and removes what an earlier runtime's programs have left in their
// temporary directory. Call it before a containerd with this state directory is started,
// while none runs. A shim may still be creating a container, but nobody waits for that any
// more.
func (s *Settings) ClearTemp(ctx context.Context) error {
	dir := tempDir(s.StateDir)
	if err := removeTemp(ctx, dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the container runtime's temporary directory: %w", err)
	}
	return nil
}

func removeTemp(ctx context.Context, dir string) error {
	err := unmountBelow(dir)
	if err == nil {
		err = wipe.Tree(ctx, filepath.Dir(dir), filepath.Base(dir))
	}
	if err != nil {
		return fmt.Errorf("remove what the container runtime has left in its temporary directory: %w", err)
	}
	return nil
}

// ReleaseMounts unmounts what a runtime with that state directory has mounted there by itself and
// what outlives a kill of the runtime: network namespaces of sandboxes, and the content of
// its temporary directory. Call it when its containers have ended. It leaves other mounts,
// because somebody's data may be behind them.
func ReleaseMounts(ctx context.Context, stateDir string) error {
	if err := removeTemp(ctx, tempDir(stateDir)); err != nil {
		return err
	}
	namespaces := NetNSDir(stateDir)
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "nsfs" || filepath.Dir(m.Mountpoint) != namespaces, false
	})
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	for _, m := range mounts {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount the network namespace %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}
