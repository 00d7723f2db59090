package ownership

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Upstream's masks (pkg/volume, volume_linux.go).
const (
	writable   = 0o660
	readable   = 0o440
	searchable = 0o110
)

// Mode is what becomes of a mode (the kernel's bits, without the type) in a
// volume that has an fsGroup.
func Mode(mode uint32, dir, readOnly bool) uint32 {
	if readOnly {
		mode |= readable
	} else {
		mode |= writable
	}
	if dir {
		mode |= searchable | unix.S_ISGID
	}
	return mode
}

// Volume is a directory whose content is to belong to a group.
type Volume struct {
	Dir   string
	Group int64
	// ReadOnly gives the group no right to write.
	ReadOnly bool
	// OnRootMismatch leaves everything as it is where the root is as it should be
	// (fsGroupChangePolicy).
	OnRootMismatch bool
	// Turn, if set, is waited for before each batch of files; done gives it back.
	Turn func(context.Context) (done func(), err error)
	// Files, if set, counts those that were looked at.
	Files *atomic.Int64
}

// Own gives everything in the volume to the group. It blocks as long as the disk
// takes, or until ctx ends, whose cause is the error then. A file that may not be
// changed (an immutable one) is left as it is, as upstream's does; one that goes
// meanwhile is none of the volume's. Calling it again is right after any outcome.
func (v Volume) Own(ctx context.Context) error {
	root, err := unix.Open(v.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: v.Dir, Err: err}
	}
	defer unix.Close(root)
	if v.OnRootMismatch {
		if matches, err := v.matches(root); err != nil || matches {
			return err
		}
	}
	if err := v.walk(ctx, root); err != nil {
		return err
	}
	_, err = v.change(root)
	return err
}

// matches says whether the root has the group, and at least the rights that Own
// gives it.
func (v *Volume) matches(root int) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: v.Dir, Err: err}
	}
	mode := st.Mode & 0o7777
	return int64(st.Gid) == v.Group && Mode(mode, true, v.ReadOnly) == mode, nil
}

// change changes one file, which may have been opened for its path only; dir says
// that it is a directory.
func (v *Volume) change(fd int) (dir bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	if v.Files != nil {
		v.Files.Add(1)
	}
	kind := st.Mode & unix.S_IFMT
	dir = kind == unix.S_IFDIR
	foreign := int64(st.Gid) != v.Group
	if foreign {
		err = unix.Fchownat(fd, "", -1, int(v.Group), unix.AT_EMPTY_PATH)
	}
	if kind == unix.S_IFLNK { // its mode means nothing
		return dir, tolerable(err)
	}
	mode := st.Mode & 0o7777
	want := Mode(mode, dir, v.ReadOnly)
	if want != mode || foreign && mode&(unix.S_ISUID|unix.S_ISGID) != 0 { // which a chown takes away
		if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), want); err != nil {
			return dir, tolerable(err)
		}
	}
	return dir, tolerable(err)
}

// tolerable is nil for a file that the file system does not let anybody change.
func tolerable(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}
