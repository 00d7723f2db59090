package ownership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// batchSize is how many files are changed between two calls of Acquire.
	batchSize = 1024
	// longPath bounds the path of one openat2, in bytes; the kernel's limit is 4095.
	longPath = 3000
)

// resolveWithin keeps path resolution inside the volume.
const resolveWithin = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// walk changes everything below root, but not root itself. It keeps the paths of
// directories that it has not read yet and opens them from the root: a tree may be deeper
// than the limit of open files.
func (v *Volume) walk(ctx context.Context, root int) error {
	pending := []string{"."}
	for len(pending) > 0 {
		dir := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		below, err := v.changeDir(ctx, root, dir)
		if err != nil {
			return err
		}
		for _, name := range below {
			pending = append(pending, path.Join(dir, name))
		}
	}
	return nil
}

// changeDir changes the entries of a directory and returns the names of its
// subdirectories.
func (v *Volume) changeDir(ctx context.Context, root int, dir string) (below []string, err error) {
	fd, err := openBelow(root, dir)
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path.Join(v.Dir, dir), err)
	}
	f := os.NewFile(uintptr(fd), path.Join(v.Dir, dir))
	defer f.Close()
	for {
		more, err := v.changeBatch(ctx, f, &below)
		if err != nil || !more {
			return below, err
		}
	}
}

// changeBatch changes the next files of a directory.
func (v *Volume) changeBatch(ctx context.Context, f *os.File, below *[]string) (more bool, err error) {
	if v.Acquire != nil {
		done, err := v.Acquire(ctx)
		if err != nil {
			return false, err
		}
		defer done()
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	names, err := f.Readdirnames(batchSize)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, name := range names {
		dir, err := v.changeEntry(int(f.Fd()), name)
		if err != nil {
			return false, fmt.Errorf("change the group of %s: %w", path.Join(f.Name(), name), err)
		}
		if dir {
			*below = append(*below, name)
		}
	}
	return true, nil
}

// changeEntry changes one entry of a directory.
func (v *Volume) changeEntry(parent int, name string) (dir bool, err error) {
	fd, err := unix.Openat2(parent, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: resolveWithin})
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	return v.change(fd)
}

// openBelow opens a directory below root, in steps of at most longPath.
func openBelow(root int, dir string) (int, error) {
	at := root
	for {
		step, rest := dir, ""
		if len(dir) > longPath {
			if cut := strings.LastIndexByte(dir[:longPath], '/'); cut > 0 {
				step, rest = dir[:cut], dir[cut+1:]
			}
		}
		fd, err := unix.Openat2(at, step, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: resolveWithin})
		if at != root {
			unix.Close(at)
		}
		if err != nil || rest == "" {
			return fd, err
		}
		at, dir = fd, rest
	}
}

// isGone says whether an entry is no longer part of the volume: it was removed, replaced by
// a link, or mounted over.
func isGone(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ELOOP, unix.ENOTDIR, unix.EXDEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
