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
	// batch is how many files are changed in one turn.
	batch = 1024
	// longPath is what one call resolves at most; the kernel takes 4095 bytes.
	longPath = 3000
)

// within keeps a resolution inside of the volume.
const within = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// walk changes everything below root, and not root. What is to be read is kept as
// paths, and opened from the root each time: a tree may be deeper than there are
// descriptors.
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

// directory changes what lies in a directory and returns the names of the
// directories there.
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

// batch changes the next files of a directory, within one turn.
func (v *Volume) batch(ctx context.Context, f *os.File, below *[]string) (more bool, err error) {
	if v.Turn != nil {
		done, err := v.Turn(ctx)
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

// entry changes one file of a directory.
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

// open opens a directory below root, a stretch of the path at a time.
func open(root int, dir string) (int, error) {
	at := root
	for {
		stretch, rest := dir, ""
		if len(dir) > longPath {
			if cut := strings.LastIndexByte(dir[:longPath], '/'); cut > 0 {
				stretch, rest = dir[:cut], dir[cut+1:]
			}
		}
		fd, err := unix.Openat2(at, stretch, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: within})
		if at != root {
			unix.Close(at)
		}
		if err != nil || rest == "" {
			return fd, err
		}
		at, dir = fd, rest
	}
}

// gone says that what had the name is none of the volume's: it was removed, or
// replaced by a link, or something is mounted there.
func gone(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ELOOP, unix.ENOTDIR, unix.EXDEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
