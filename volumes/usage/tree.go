package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth bounds the descriptors in use; a container may nest directories deeper.
	maxDepth = 100
	// maxDeferred bounds the memory for directories deeper than that.
	maxDeferred = 1 << 14
	batch       = 1024
)

// errLimitReached ends a walk once the limit is exceeded.
var errLimitReached = errors.New("enough")

// errIncomplete says that a tree has more than the walk counted.
var errIncomplete = errors.New("the directories are too many and too deep to be counted")

// Amount is an amount of disk usage.
type Amount struct {
	// Bytes counts whole blocks.
	Bytes, Inodes int64
}

func (a Amount) plus(b Amount) Amount { return Amount{a.Bytes + b.Bytes, a.Inodes + b.Inodes} }

// walk adds up a tree. It opens directories by descriptors, so that it does not follow a
// link that replaces a directory meanwhile.
type walk struct {
	root        int
	dev         uint64
	used        Amount
	linkShares  float64 // sum of 1/nlink over the names of files with hard links
	enough      int64   // bytes
	deferred    []*dirPath
	maxDeferred int
	incomplete  bool // a directory was neither counted nor deferred
}

// dirPath is the path to a directory.
type dirPath struct {
	parent *dirPath
	name   string
}

// treeSize returns the usage of a directory and everything below it. It stops once that
// exceeds enough bytes. The error is errIncomplete if there is more than was counted. Files
// removed during the walk may not be counted. A missing directory uses nothing. It blocks
// as long as the disk takes, or until ctx ends.
func treeSize(ctx context.Context, dir string, enough int64) (Amount, error) {
	return treeSizeWithin(ctx, dir, enough, maxDeferred)
}

// treeSizeWithin is treeSize with room for that many deferred directories at a time.
func treeSizeWithin(ctx context.Context, dir string, enough int64, room int) (Amount, error) {
	root, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return Amount{}, nil
	}
	if err != nil {
		return Amount{}, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(root), dir)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return Amount{}, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	w := &walk{root: root, dev: st.Dev, used: Amount{Bytes: st.Blocks * 512, Inodes: 1}, enough: enough, maxDeferred: room}
	err = w.directory(ctx, f, nil, 0)
	for err == nil && len(w.deferred) > 0 {
		last := len(w.deferred) - 1
		deep := w.deferred[last]
		w.deferred = w.deferred[:last]
		err = w.walkDeferred(ctx, deep)
	}
	switch {
	case errors.Is(err, errLimitReached):
		err = nil
	case err == nil && w.incomplete:
		err = errIncomplete
	}
	w.used.Inodes += int64(math.Round(w.linkShares))
	return w.used, err
}

// directory adds the entries of a directory.
func (w *walk) directory(ctx context.Context, f *os.File, at *dirPath, depth int) error {
	for {
		names, err := f.Readdirnames(batch)
		for _, name := range names {
			if err := w.entry(ctx, f, name, at, depth); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, unix.ENOENT): // at the end, or the directory was deleted
			return nil
		case err != nil:
			return fmt.Errorf("read a directory below %s: %w", f.Name(), err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// entry adds one entry of a directory. A file with hard links counts in equal parts at
// each name: all are in this volume, because hard links do not cross mounts.
func (w *walk) entry(ctx context.Context, dir *os.File, name string, at *dirPath, depth int) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
	if err != nil || st.Dev != w.dev {
		return nil // gone, or a mount
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if isDir {
		st.Nlink = 1
	}
	if names := int64(max(st.Nlink, 1)); names == 1 {
		w.used.Inodes++
		w.used.Bytes += st.Blocks * 512
	} else {
		w.linkShares += 1 / float64(names)
		w.used.Bytes += st.Blocks * 512 / names
	}
	if w.used.Bytes > w.enough {
		return errLimitReached
	}
	if !isDir {
		return nil
	}
	here := &dirPath{at, name}
	if depth >= maxDepth {
		if len(w.deferred) >= w.maxDeferred {
			w.incomplete = true
			return nil
		}
		w.deferred = append(w.deferred, here)
		return nil
	}
	child, err := openDir(int(dir.Fd()), name)
	if err != nil {
		return ignoreMoved(err)
	}
	f := os.NewFile(uintptr(child), dir.Name())
	defer f.Close()
	return w.directory(ctx, f, here, depth+1)
}

// walkDeferred adds the entries of a directory that was deferred as too deep.
func (w *walk) walkDeferred(ctx context.Context, at *dirPath) error {
	var names []string
	for b := at; b != nil; b = b.parent {
		names = append(names, b.name)
	}
	fd := w.root
	for i := len(names) - 1; i >= 0; i-- {
		next, err := openDir(fd, names[i])
		if fd != w.root {
			_ = unix.Close(fd)
		}
		if err != nil {
			return ignoreMoved(err)
		}
		fd = next
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	return w.directory(ctx, f, at, 0)
}

// openDir opens a directory without following a link or crossing a mount.
func openDir(dir int, name string) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
}

// ignoreMoved drops the errors for a directory that was removed, replaced or mounted
// over.
func ignoreMoved(err error) error {
	for _, moved := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.EAGAIN} {
		if errors.Is(err, moved) {
			return nil
		}
	}
	return fmt.Errorf("open a directory: %w", err)
}

// filesSize returns the usage of the regular files at the paths; anything else, and a
// missing file, uses nothing.
func filesSize(paths ...string) (Amount, error) {
	var all Amount
	for _, path := range paths {
		var st unix.Stat_t
		err := unix.Lstat(path, &st)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return all, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			all = all.plus(Amount{st.Blocks * 512, 1})
		}
	}
	return all, nil
}

// filesIn is filesSize of everything in a directory, which may be missing.
func filesIn(dir string) (Amount, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Amount{}, err
	}
	paths := make([]string, 0, len(entries))
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return filesSize(paths...)
}
