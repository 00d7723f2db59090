package volumes

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// tmpfs mounts tmpfs file systems, with noswap where the kernel supports it.
type tmpfs struct {
	// noswapUnsupported is set once the kernel (before 6.4) has rejected noswap.
	noswapUnsupported atomic.Bool
}

// tmpfsOptions are those of a mount.
type tmpfsOptions struct {
	size  int64   // bytes
	group *int64  // the volume's, or nil
	mode  *uint32 // nil for the kernel's default 1777, as with the kubelet
}

// mount mounts a tmpfs at dir, unless there is one already. Its root is setgid if the volume
// has a group.
func (m *tmpfs) mount(dir string, o tmpfsOptions) error {
	if done, err := isMountedAs(dir, unix.TMPFS_MAGIC); done || err != nil {
		return err
	}
	options := "size=" + strconv.FormatInt(o.size, 10)
	if o.group != nil {
		options += fmt.Sprintf(",gid=%d", *o.group)
	}
	if o.group != nil || o.mode != nil {
		options += fmt.Sprintf(",mode=%o", rootMode(o.mode, 0o1777, o.group))
	}
	if !m.noswapUnsupported.Load() {
		err := unix.Mount("tmpfs", dir, "tmpfs", 0, options+",noswap")
		if !errors.Is(err, unix.EINVAL) {
			return wrapMountError("tmpfs", dir, err)
		}
		m.noswapUnsupported.Store(true)
	}
	return wrapMountError("tmpfs", dir, unix.Mount("tmpfs", dir, "tmpfs", 0, options))
}

// NoswapSupported says whether the kernel keeps tmpfs out of swap: it does since 6.4. It asks
// the kernel without a mount, and returns true if it cannot ask.
func NoswapSupported() bool {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return true
	}
	defer unix.Close(fs)
	return !errors.Is(unix.FsconfigSetFlag(fs, "noswap"), unix.EINVAL)
}
