package volumes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// shareMounts prepares a volume below podd's root for mount propagation into a container.
// Runtimes reject propagation from a mount that is not shared. On a host with a private
// root mount (in a container, or without systemd) no mount is shared. The kubelet makes its
// whole root directory shared when it starts; here the shared mount covers one volume and
// goes away with it.
func shareMounts(path string) error {
	mount, err := containingMount(path)
	if err != nil {
		return fmt.Errorf("determine the mount of %s: %w", path, err)
	}
	if slices.ContainsFunc(strings.Fields(mount.Optional), func(f string) bool { return strings.HasPrefix(f, "shared:") }) {
		return nil
	}
	if mount.Mountpoint != path {
		if err := wrapMountError("itself", path, unix.Mount(path, path, "", unix.MS_BIND, "")); err != nil {
			return err
		}
	}
	return wrapMountError("shared propagation", path, unix.Mount("", path, "", unix.MS_SHARED|unix.MS_REC, ""))
}

// containingMount returns the mount that a path is on: the last one at the longest mount point.
func containingMount(path string) (*mountinfo.Info, error) {
	parents, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return nil, err
	}
	var mount *mountinfo.Info
	for _, m := range parents {
		if mount == nil || len(m.Mountpoint) >= len(mount.Mountpoint) {
			mount = m
		}
	}
	if mount == nil {
		return nil, fmt.Errorf("the mount table shows none")
	}
	return mount, nil
}
