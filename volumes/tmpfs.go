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

// mount mounts a tmpfs of size bytes at dir, unless there is one already. The mode is
// the kernel's default 1777, as with the kubelet, plus setgid if the volume has a group.
func (m *tmpfs) mount(dir string, size int64, group *int64) error {
	if done, err := isMountedAs(dir, unix.TMPFS_MAGIC); done || err != nil {
		return err
	}
	options := "size=" + strconv.FormatInt(size, 10)
	if group != nil {
		options += fmt.Sprintf(",gid=%d,mode=3777", *group)
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
