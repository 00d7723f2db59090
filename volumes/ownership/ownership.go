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

// Mode adds the group's permissions to a mode (permission bits without the type), as for
// files in a volume with an fsGroup.
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

// Volume is a directory. Own gives its content to a group.
type Volume struct {
	Dir   string
	Group int64
	// ReadOnly gives the group no write permission.
	ReadOnly bool
	// OnRootMismatch changes nothing if the root already has the right group and
	// permissions (fsGroupChangePolicy).
	OnRootMismatch bool
	// Acquire, if set, is called before each batch of files, and done after it, to bound
	// parallel work.
	Acquire func(context.Context) (done func(), err error)
	// Processed, if set, counts the files that were processed.
	Processed *atomic.Int64
}

// Own gives everything in the volume to the group. It blocks as long as the disk takes,
// or until ctx ends; the error is then ctx's cause. As upstream, it skips a file that
// cannot be changed (an immutable one). It also skips one that disappears meanwhile. It
// may be called again after any outcome.
func (v Volume) Own(ctx context.Context) error {
	root, err := unix.Open(v.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: v.Dir, Err: err}
	}
	defer unix.Close(root)
	if v.OnRootMismatch {
		if matches, err := v.rootMatches(root); err != nil || matches {
			return err
		}
	}
	if err := v.walk(ctx, root); err != nil {
		return err
	}
	_, err = v.change(root)
	return err
}

// rootMatches says whether the root has the group, and at least the permissions that Own
// would set.
func (v *Volume) rootMatches(root int) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: v.Dir, Err: err}
	}
	mode := st.Mode & 0o7777
	return int64(st.Gid) == v.Group && Mode(mode, true, v.ReadOnly) == mode, nil
}

// change sets group and mode of one file, which may be opened with O_PATH; dir says that
// it is a directory.
func (v *Volume) change(fd int) (dir bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	if v.Processed != nil {
		v.Processed.Add(1)
	}
	kind := st.Mode & unix.S_IFMT
	dir = kind == unix.S_IFDIR
	foreign := int64(st.Gid) != v.Group
	if foreign {
		err = unix.Fchownat(fd, "", -1, int(v.Group), unix.AT_EMPTY_PATH)
	}
	if kind == unix.S_IFLNK { // its mode is ignored
		return dir, ignoreUnchangeable(err)
	}
	mode := st.Mode & 0o7777
	want := Mode(mode, dir, v.ReadOnly)
	if want != mode || foreign && mode&(unix.S_ISUID|unix.S_ISGID) != 0 { // chown clears these bits
		if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), want); err != nil {
			return dir, ignoreUnchangeable(err)
		}
	}
	return dir, ignoreUnchangeable(err)
}

// ignoreUnchangeable drops the errors for files that nobody can change.
func ignoreUnchangeable(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}
