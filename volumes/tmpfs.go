package volumes

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"podd/internal/selinux"
)

// tmpfs mounts tmpfs file systems, with noswap where the kernel supports it.
type tmpfs struct {
	// noswapUnsupported is set once the kernel (before 6.4) has rejected noswap.
	noswapUnsupported atomic.Bool
	// labels are the node's; nil without SELinux.
	labels *selinux.Labels
	// mountCall is mount(2), except in tests.
	mountCall func(source, target, kind string, flags uintptr, data string) error
	// labelAt is selinux.LabelOf, except in tests.
	labelAt func(path string) string
}

// labelOf returns the SELinux label with which a live volume is mounted: podd's own files in
// it then have that label, too, from their creation on. Unless all containers that mount the
// volume have that label, it is "", and the runtime relabels: nobody can relabel the files of
// a mount that has a label.
func (m *tmpfs) labelOf(t target) string { return m.labels.OfAllContainers(t.pod, t.volume.Name) }

// labelled says whether a live volume's files have the label that its containers need. An
// earlier podd, or one that knew fewer containers, may have mounted it without.
func (m *tmpfs) labelled(t target) bool {
	label := m.labelOf(t)
	return label != "" && m.labelAt(t.dir) == label
}

// tmpfsOptions are those of a mount.
type tmpfsOptions struct {
	size  int64   // bytes
	group *int64  // the volume's, or nil
	mode  *uint32 // nil for the kernel's default 1777, as with the kubelet
	label string  // the SELinux label of all its files; "" for none
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
	if o.label != "" {
		options += "," + selinux.MountOption(o.label)
	}
	noswap := !m.noswapUnsupported.Load()
	if noswap {
		if err := m.mountCall("tmpfs", dir, "tmpfs", 0, options+",noswap"); !errors.Is(err, unix.EINVAL) {
			return wrapMountError("tmpfs", dir, err)
		}
	}
	err := m.mountCall("tmpfs", dir, "tmpfs", 0, options)
	if noswap && err == nil { // else EINVAL was about another option, such as an unknown label
		m.noswapUnsupported.Store(true)
	}
	return wrapMountError("tmpfs", dir, err)
}

// NoswapSupported says whether the kernel can keep a tmpfs out of swap (since 6.4). It asks the
// kernel without mounting anything, and returns true if it cannot ask.
func NoswapSupported() bool {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return true
	}
	defer unix.Close(fs)
	return !errors.Is(unix.FsconfigSetFlag(fs, "noswap"), unix.EINVAL)
}
