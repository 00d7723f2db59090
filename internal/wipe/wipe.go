// Package wipe deletes a directory with everything in it, but nothing that is mounted
// there: somebody's data may be behind a mount (kubernetes/kubernetes#60987).
package wipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// MountError is a mount in the way of a deletion.
type MountError struct{ Path string }

func (e *MountError) Error() string {
	return fmt.Sprintf("%s is a mount point: nothing behind it is deleted", e.Path)
}

// mountID identifies the mount that a directory is in. If two directories have different
// IDs, a mount separates them, or a btrfs subvolume, where st_dev differs and the mount does
// not. Files have no dev: overlayfs gives them that of a layer.
type mountID struct {
	dev   uint64
	mount uint64
}

// remover deletes a tree by file descriptors, so that a directory that is renamed or
// replaced by a link meanwhile does not lead it elsewhere.
type remover struct {
	parentFD int // the directory that holds the tree
	rootFD   int // the tree's own
	mount    mountID
	// movedToRoot counts directories that were too deep and were moved up to the tree's root.
	movedToRoot int
}

// maxDepth bounds the descriptors in use; a container can nest directories as deep as it
// likes.
const maxDepth = 100

// Tree deletes parent/name and everything below. At the first thing that is not in the
// mount of parent, it stops and changes nothing further; the error then is, or wraps, a
// *MountError. It succeeds if there is nothing. parent may be, or be behind, a symbolic
// link; below it none is followed. It blocks as long as the disk takes, or until ctx is
// done.
func Tree(ctx context.Context, parent, name string) error {
	top, err := unix.Open(parent, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: parent, Err: err}
	}
	defer unix.Close(top)
	at, err := mountIDOf(top, "")
	if err != nil {
		return &os.PathError{Op: "statx", Path: parent, Err: err}
	}
	r := &remover{parentFD: top, rootFD: -1, mount: at}
	err = r.remove(ctx, top, name, filepath.Join(parent, name), 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func mountIDOf(dir int, name string) (mountID, error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Statx(dir, name, flags, unix.STATX_MNT_ID|unix.STATX_TYPE, &st); err != nil {
		return mountID{}, err
	}
	at := mountID{mount: st.Mnt_id}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		at.dev = unix.Mkdev(st.Dev_major, st.Dev_minor)
	}
	return at, nil
}

// remove deletes dir/name, whatever it is; path is for messages only.
func (r *remover) remove(ctx context.Context, dir int, name, path string, depth int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	at, err := mountIDOf(dir, name)
	if err != nil {
		return wrapRemove(path, err)
	}
	if at.mount != r.mount.mount || (at.dev != 0 && at != r.mount) {
		return &MountError{path}
	}
	err = unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return wrapRemove(path, err)
	}
	// A directory. EPERM is what POSIX has for it, and an immutable file's.
	child, openErr := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if openErr != nil {
		return wrapRemove(path, err)
	}
	f := os.NewFile(uintptr(child), path)
	defer f.Close()
	// Again, for the opened directory: it may be another by now.
	if at, err := mountIDOf(child, ""); err != nil || at != r.mount {
		return errors.Join(err, &MountError{path})
	}
	if depth == 0 {
		r.rootFD = child
	}
	if depth > maxDepth {
		return r.moveToRoot(dir, name, path)
	}
	if err := r.removeContents(ctx, f, path, depth); err != nil {
		return err
	}
	return wrapRemove(path, unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
}

// removeContents deletes the content of a directory. It reads the directory again from its start
// until it is empty, because deleting while reading may skip entries.
func (r *remover) removeContents(ctx context.Context, f *os.File, path string, depth int) error {
	for {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return wrapRemove(path, err)
		}
		names, err := f.Readdirnames(1024)
		if errors.Is(err, io.EOF) || (err == nil && len(names) == 0) {
			return nil
		}
		if err != nil {
			return wrapRemove(path, err)
		}
		for _, name := range names {
			if err := r.remove(ctx, int(f.Fd()), name, path+"/"+name, depth+1); err != nil {
				return err
			}
		}
	}
}

// moveToRoot moves a directory that is too deep up to the tree's root. The reading of the root
// will find it there.
func (r *remover) moveToRoot(dir int, name, path string) error {
	for {
		r.movedToRoot++
		err := unix.Renameat2(dir, name, r.rootFD, ".deep-"+strconv.Itoa(r.movedToRoot), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return wrapRemove(path, err)
		}
	}
}

func wrapRemove(path string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EBUSY) { // a mount point, here or in another mount namespace
		return fmt.Errorf("delete %s: %w", path, errors.Join(&MountError{path}, err))
	}
	return fmt.Errorf("delete %s: %w", path, err)
}
