package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// localVolume is a PersistentVolume of type local: a directory or block device of the
// node. Below the pod's directory, a directory is bind-mounted and the file system of a
// device is mounted; for volumeMode Block, the device is used at its own path.
type localVolume struct{ devices *devices }

const localPlugin = "kubernetes.io/local-volume"

func localVolumes(d *devices) kind {
	return kind{
		plugin: localPlugin, managed: true, mayBlock: true, supportsBlock: true,
		handlesPV: func(s *v1.PersistentVolumeSource) bool { return s.Local != nil },
		path: func(t target) string {
			if t.bound.Block() {
				return t.bound.Volume.Spec.Local.Path
			}
			return t.dir
		},
		driver: localVolume{d},
	}
}

// refresh does nothing: the mount stays.
func (localVolume) refresh(context.Context, target) error { return nil }

// tearDown has nothing to do: the volume is already unmounted, and its data stays.
func (localVolume) tearDown(context.Context, string) error { return nil }

// setUp mounts the volume as upstream's local plugin does, with its error messages.
func (l localVolume) setUp(ctx context.Context, t target) error {
	path := t.bound.Volume.Spec.Local.Path
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("path %q does not exist", path)
	case err != nil:
		return err
	}
	device := info.Mode()&fs.ModeDevice != 0 && info.Mode()&fs.ModeCharDevice == 0
	switch {
	case t.bound.Block() && !device:
		return fmt.Errorf("%s is %s, not a block device, but PersistentVolume %s has volumeMode Block", path, describeFileType(info.Mode()), t.bound.Volume.Name)
	case t.bound.Block():
		return nil
	case !device && !info.IsDir():
		return fmt.Errorf("%s is %s: only directory and block device are supported", path, describeFileType(info.Mode()))
	}
	mounted, err := makeMountPoint(t.dir)
	if err != nil {
		return err
	}
	if !mounted {
		if device {
			err = l.devices.mount(ctx, path, t)
		} else {
			err = bindDirectory(ctx, path, t)
		}
		if err != nil {
			return err
		}
	}
	return l.applyFSGroup(ctx, t)
}

// bindDirectory bind-mounts a directory at the volume's, without its submounts.
func bindDirectory(ctx context.Context, path string, t target) error {
	if options := t.bound.Volume.Spec.MountOptions; len(options) > 0 {
		options = slices.Concat([]string{"bind"}, options)
		if t.readOnly() {
			options = append(options, "ro")
		}
		return runMount(ctx, path, t.dir, "", options)
	}
	if err := unix.Mount(path, t.dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", path, err)
	}
	if !t.readOnly() {
		return nil
	}
	if err := makeReadOnly(t.dir); err != nil {
		return errors.Join(err, unix.Unmount(t.dir, unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

// makeReadOnly remounts one mount read-only and keeps its other flags.
func makeReadOnly(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	// The flags of statfs(2) have the values of those of mount(2), except relatime.
	const relatime, kept = 0x1000, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME
	flags := uintptr(st.Flags) & kept
	if st.Flags&relatime != 0 {
		flags |= unix.MS_RELATIME
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", dir, err)
	}
	return nil
}

// applyFSGroup applies the pod's fsGroup if no other pod has the volume mounted; otherwise it
// warns if their groups differ.
func (localVolume) applyFSGroup(ctx context.Context, t target) error {
	group := fsGroup(t.pod)
	if group == nil || t.readOnly() {
		return nil
	}
	shared, err := sharedWithPods(t)
	if err != nil {
		return err
	}
	if !shared {
		return t.fsGroups.apply(ctx, t, t.dir)
	}
	var st unix.Stat_t
	if err := unix.Stat(t.dir, &st); err != nil {
		return err
	}
	if int64(st.Gid) != *group && t.fsGroups.events != nil {
		t.fsGroups.events.Event(t.pod, v1.EventTypeWarning, "AlreadyMountedVolume", fmt.Sprintf(
			"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", *group, t.bound.Volume.Name, st.Gid))
	}
	return nil
}

// sharedWithPods says whether another pod has mounted the same volume.
func sharedWithPods(t target) (bool, error) {
	table, err := mountinfo.GetMounts(nil)
	if err != nil {
		return false, fmt.Errorf("read the mount table: %w", err)
	}
	at := slices.IndexFunc(table, func(i *mountinfo.Info) bool { return i.Mountpoint == t.dir })
	if at < 0 {
		return false, nil
	}
	own := filepath.Dir(filepath.Dir(filepath.Dir(t.dir))) // pods/UID, below which is volumes/PLUGIN/NAME
	pods := filepath.Dir(own)
	return slices.ContainsFunc(table, func(i *mountinfo.Info) bool {
		same := i.Major == table[at].Major && i.Minor == table[at].Minor && i.Root == table[at].Root
		return same && strings.HasPrefix(i.Mountpoint, pods+"/") && !strings.HasPrefix(i.Mountpoint, own+"/")
	}), nil
}
