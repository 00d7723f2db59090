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
	over, err := containingMount(path)
	if err != nil {
		return fmt.Errorf("determine the mount of %s: %w", path, err)
	}
	if slices.ContainsFunc(strings.Fields(over.Optional), func(f string) bool { return strings.HasPrefix(f, "shared:") }) {
		return nil
	}
	if over.Mountpoint != path {
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
	var over *mountinfo.Info
	for _, m := range parents {
		if over == nil || len(m.Mountpoint) >= len(over.Mountpoint) {
			over = m
		}
	}
	if over == nil {
		return nil, fmt.Errorf("the mount table shows none")
	}
	return over, nil
}
