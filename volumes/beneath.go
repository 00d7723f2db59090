package volumes

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// errOutsideVolume does not say where the path leads: that would leak facts about the host.
var errOutsideVolume = errors.New("it points outside the volume")

// attempts bounds how often a path is looked up again because somebody else changes it
// at the same time: the kernel gives up (EAGAIN), or a directory is made and removed.
const attempts = 16

// openBeneath opens a path within dir. Links within the volume are followed (ConfigMaps
// consist of them); the kernel rejects any that leads out.
func openBeneath(dir int, name string) (fd int, err error) {
	for range attempts {
		fd, err = unix.Openat2(dir, name, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
		})
		if !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	switch {
	case errors.Is(err, unix.EXDEV):
		return -1, errOutsideVolume
	case errors.Is(err, unix.ELOOP):
		return -1, errors.New("it goes through a loop of symbolic links, or a link that may not be followed")
	case err != nil:
		return -1, err
	}
	return fd, nil
}

// makeBeneath creates the missing directories of the path and opens it. They get the mode
// of the volume's root as upstream does: a container that may write to the volume may
// then write to its subPath. Others may make the same path at the same time.
func makeBeneath(volume int, name string) (int, error) {
	var root unix.Stat_t
	if err := unix.Fstat(volume, &root); err != nil {
		return -1, err
	}
	if root.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1, errors.New("the volume is a file, not a directory")
	}
	parts := strings.Split(name, "/")
	parent, err := unix.Dup(volume)
	if err != nil {
		return -1, err
	}
	for i := range parts {
		next, err := openOrMake(volume, parent, path.Join(parts[:i+1]...), root.Mode&0o7777)
		unix.Close(parent)
		if err != nil {
			return -1, err
		}
		parent = next
	}
	return parent, nil
}

// openOrMake opens a path within the volume, or creates its last part in parent. If
// somebody else has created that part meanwhile, it opens theirs like any other.
func openOrMake(volume, parent int, name string, mode uint32) (int, error) {
	for range attempts {
		fd, err := openBeneath(volume, name)
		if !errors.Is(err, unix.ENOENT) {
			return fd, err
		}
		fd, err = makeComponent(parent, path.Base(name), mode)
		if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOENT) {
			return fd, err
		}
		var st unix.Stat_t
		if unix.Fstatat(parent, path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return -1, errors.New("a part of it is a dangling symbolic link")
		}
	}
	return -1, errors.New("somebody else makes and removes one of its directories at the same time")
}

// makeComponent creates one directory and opens it. It never follows a link, and changes the
// mode of nothing that it did not create.
func makeComponent(parent int, name string, mode uint32) (int, error) {
	if err := unix.Mkdirat(parent, name, mode&0o777); err != nil {
		return -1, fmt.Errorf("create one of its directories: %w", err)
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open one of its directories: %w", err)
	}
	if err := unix.Fchmod(fd, mode); err != nil { // mkdir obeyed the umask
		unix.Close(fd)
		return -1, fmt.Errorf("set the mode of one of its directories: %w", err)
	}
	return fd, nil
}
