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
	// batch is how many files are changed between two calls of Acquire.
	batch = 1024
	// longPath bounds the path of one openat2, in bytes; the kernel's limit is 4095.
	longPath = 3000
)

// within keeps path resolution inside the volume.
const within = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// walk changes everything below root, but not root itself. It keeps the paths of
// directories that it has not read yet and opens them from the root: a tree may be deeper
// than the limit of open files.
func (v *Volume) walk(ctx context.Context, root int) error {
	pending := []string{"."}
	for len(pending) > 0 {
		dir := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		below, err := v.directory(ctx, root, dir)
		if err != nil {
			return err
		}
		for _, name := range below {
			pending = append(pending, path.Join(dir, name))
		}
	}
	return nil
}

// directory changes the entries of a directory and returns the names of its
// subdirectories.
func (v *Volume) directory(ctx context.Context, root int, dir string) (below []string, err error) {
	fd, err := open(root, dir)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path.Join(v.Dir, dir), err)
	}
	f := os.NewFile(uintptr(fd), path.Join(v.Dir, dir))
	defer f.Close()
	for {
		more, err := v.batch(ctx, f, &below)
		if err != nil || !more {
			return below, err
		}
	}
}

// batch changes the next files of a directory.
func (v *Volume) batch(ctx context.Context, f *os.File, below *[]string) (more bool, err error) {
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
	names, err := f.Readdirnames(batch)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, name := range names {
		dir, err := v.entry(int(f.Fd()), name)
		if err != nil {
			return false, fmt.Errorf("change the group of %s: %w", path.Join(f.Name(), name), err)
		}
		if dir {
			*below = append(*below, name)
		}
	}
	return true, nil
}

// entry changes one entry of a directory.
func (v *Volume) entry(parent int, name string) (dir bool, err error) {
	fd, err := unix.Openat2(parent, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: within})
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	return v.change(fd)
}

// open opens a directory below root, in steps of at most longPath.
func open(root int, dir string) (int, error) {
	at := root
	for {
		step, rest := dir, ""
		if len(dir) > longPath {
			if cut := strings.LastIndexByte(dir[:longPath], '/'); cut > 0 {
				step, rest = dir[:cut], dir[cut+1:]
			}
		}
		fd, err := unix.Openat2(at, step, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: within})
		if at != root {
			unix.Close(at)
		}
		if err != nil || rest == "" {
			return fd, err
		}
		at, dir = fd, rest
	}
}

// gone says whether an entry is no longer part of the volume: it was removed, replaced by
// a link, or mounted over.
func gone(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ELOOP, unix.ENOTDIR, unix.EXDEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
