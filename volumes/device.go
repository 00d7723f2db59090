package volumes

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"podd/internal/keylock"
)

// devices mounts the file systems of block devices, once for each pod that uses one. The
// kernel shares one superblock among the mounts.
type devices struct {
	// locks are by device number: each is held while a device is probed, formatted, checked
	// and mounted.
	locks keylock.Locks[uint64]
}

// mount mounts the file system of the device at path at the target, as upstream does
// (mount-utils, SafeFormatAndMount): an empty device is formatted, any other is checked
// before its first mount.
func (d *devices) mount(ctx context.Context, path string, t target) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	unlock, err := d.locks.Lock(ctx, st.Rdev)
	if err != nil {
		return err
	}
	defer unlock()
	fsType := "ext4"
	if wanted := t.bound.Volume.Spec.Local.FSType; wanted != nil && *wanted != "" {
		fsType = *wanted
	}
	inUse, err := deviceInUse(st.Rdev)
	if err != nil {
		return err
	}
	found := fsType
	if inUse == nil {
		if found, err = prepareDevice(ctx, path, fsType, t.readOnly()); err != nil {
			return err
		}
	}
	options, after := slices.Clone(t.bound.Volume.Spec.MountOptions), false
	if t.readOnly() {
		// Already mounted read-write: then only this mount can be made read-only.
		if after = inUse != nil && !slices.Contains(splitOptions(inUse.VFSOptions), "ro"); !after {
			options = append(options, "ro")
		}
	}
	err = runMount(ctx, path, t.dir, fsType, options)
	if err == nil && after {
		if err = makeReadOnly(t.dir); err != nil {
			err = errors.Join(err, unix.Unmount(t.dir, unix.UMOUNT_NOFOLLOW))
		}
	}
	switch {
	case err == nil:
		return nil
	case found != fsType:
		return fmt.Errorf("failed to mount the volume as %q, it already contains %s. Mount error: %w", fsType, found, err)
	}
	return fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w", path, t.dir, fsType, err)
}

// deviceInUse returns a mount of the device, or nil.
func deviceInUse(device uint64) (*mountinfo.Info, error) {
	major, minor := int(unix.Major(device)), int(unix.Minor(device))
	found, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		same := i.Major == major && i.Minor == minor
		return !same, same
	})
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return found[0], nil
}

// prepareDevice checks the file system of a device, or formats the device if it is empty,
// and returns the type. Steps that modify the device are not interrupted when ctx ends.
func prepareDevice(ctx context.Context, path, fsType string, readOnly bool) (found string, err error) {
	found, err = probeDevice(ctx, path)
	switch {
	case err != nil:
		return "", err
	case found == "" && readOnly:
		return "", fmt.Errorf("cannot mount unformatted disk %s as we are manipulating it in read-only mode", path)
	case found == "":
		return fsType, formatDevice(context.WithoutCancel(ctx), path, fsType)
	case readOnly:
		return found, nil
	}
	return found, fsckDevice(context.WithoutCancel(ctx), path)
}

// probeDevice returns what a device contains: the type of its file system, a description of
// something else, or "" for an empty device. A device counts as empty only if blkid prints
// nothing for it, because an empty device gets formatted.
func probeDevice(ctx context.Context, path string) (string, error) {
	out, err := runProgram(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", path)
	const nothing = 2
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == nothing && out == "" {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find out what is on %s with blkid: %w", path, err)
	}
	tags := parseBlkid(out)
	switch {
	case tags["TYPE"] != "":
		return tags["TYPE"], nil
	case tags["PTTYPE"] != "":
		return "unknown data, probably partitions", nil
	}
	return "", fmt.Errorf("find out what is on %s with blkid: it says %q", path, out)
}

func formatDevice(ctx context.Context, path, fsType string) error {
	args := []string{path}
	switch fsType {
	case "ext3", "ext4":
		args = []string{"-F", "-m0", path} // no prompt, no blocks for root alone
	case "xfs":
		args = []string{"-f", path}
	}
	_, err := runProgram(ctx, "mkfs."+fsType, args...)
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s is empty, and cannot be formatted: the program mkfs.%s is missing", path, fsType)
	}
	if err != nil {
		return fmt.Errorf("format %s: %w", path, err)
	}
	return nil
}

// fsckDevice makes fsck repair what it can without asking.
func fsckDevice(ctx context.Context, path string) error {
	_, err := runProgram(ctx, "fsck", "-a", path)
	const uncorrected = 4
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == uncorrected {
		return fmt.Errorf("'fsck' found errors on device %s but could not correct them: %w", path, err)
	}
	return nil // corrected, or fsck cannot check this type: the mount shows
}

// parseBlkid parses blkid's NAME=value lines.
func parseBlkid(text string) map[string]string {
	tags := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			tags[name] = value
		}
	}
	return tags
}

func splitOptions(options string) []string { return strings.Split(options, ",") }
