package testnode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"
)

// Disk is an ext4 in a file, mounted: of a known size, and with a journal, whatever the
// machine's own file system has. Close unmounts it.
type Disk struct {
	// Dir is where it is mounted.
	Dir   string
	image string
}

// inodeRatio is how many bytes of a Disk there are for each of its inodes.
const inodeRatio = 16 << 10

// NewDisk makes the file image, of size bytes, which take space only as they are used, and
// mounts it at dir, which it creates. It needs root, mkfs.ext4 and a loop device.
func NewDisk(dir, image string, size int64) (*Disk, error) {
	d := &Disk{Dir: dir, image: image}
	if err := d.make(size); err != nil {
		return nil, errors.Join(fmt.Errorf("make a disk in %s for %s: %w", image, dir, err), os.Remove(image))
	}
	// What containers mount in a volume is to reach the node, for those that ask for it.
	if err := errors.Join(unix.Mount("", dir, "", unix.MS_SHARED, ""), os.Chmod(dir, 0o711)); err != nil {
		return nil, errors.Join(fmt.Errorf("share the mounts of the disk at %s: %w", dir, err), d.Close())
	}
	return d, nil
}

// MountedDisk is what an earlier process made with NewDisk and did not close.
func MountedDisk(dir, image string) *Disk { return &Disk{Dir: dir, image: image} }

func (d *Disk) make(size int64) error {
	if err := os.MkdirAll(d.Dir, 0o711); err != nil {
		return err
	}
	f, err := os.Create(d.image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	for _, c := range [][]string{
		// The kernel would write the rest of the inodes while the disk is used.
		{"mkfs.ext4", "-q", "-F", "-m", "0", "-N", strconv.FormatInt(size/inodeRatio, 10), "-E", "lazy_itable_init=0", d.image},
		{"mount", "-o", "loop", d.image, d.Dir},
	} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", c, err, out)
		}
	}
	return nil
}

// Close unmounts the disk, also while a process is on it, and removes its file.
func (d *Disk) Close() error {
	if err := unix.Unmount(d.Dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount the disk at %s: %w", d.Dir, err)
	}
	if err := os.Remove(d.image); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
