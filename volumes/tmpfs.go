package volumes

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// tmpfs mounts file systems in memory, which is never swapped to a disk where the
// kernel can be told so.
type tmpfs struct {
	// swappable is set once the kernel (before 6.4) has refused noswap.
	swappable atomic.Bool
}

// mount mounts one of at most size bytes at dir, unless one is there already. The
// mode is the kernel's default of 1777, which is what users of the kubelet find,
// and setgid where the volume has a group.
func (m *tmpfs) mount(dir string, size int64, group *int64) error {
	if done, err := isMounted(dir, unix.TMPFS_MAGIC); done || err != nil {
		return err
	}
	options := "size=" + strconv.FormatInt(size, 10)
	if group != nil {
		options += fmt.Sprintf(",gid=%d,mode=3777", *group)
	}
	if !m.swappable.Load() {
		err := unix.Mount("tmpfs", dir, "tmpfs", 0, options+",noswap")
		if !errors.Is(err, unix.EINVAL) {
			return wrapMount("tmpfs", dir, err)
		}
		m.swappable.Store(true)
	}
	return wrapMount("tmpfs", dir, unix.Mount("tmpfs", dir, "tmpfs", 0, options))
}
