package podfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// IsTerminationLog says that podd created this file for a container.
func (d Dirs) IsTerminationLog(file string) bool {
	return strings.HasPrefix(file, d.Pods()+"/") && strings.Contains(file, "/containers/")
}

// ReadTail reads at most the last most bytes of a file that a container may have
// replaced: only a regular file, and without following a symlink below podd's own
// directory. A FIFO or a device must not block the observer, and a symlink must not
// expose the node's files.
func (d Dirs) ReadTail(file string, most int64) ([]byte, error) {
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	dir := unix.AT_FDCWD
	if rel, err := filepath.Rel(d.Root, file); err == nil && filepath.IsLocal(rel) {
		root, err := os.Open(d.Root) // which may itself be behind a symlink
		if err != nil {
			return nil, err
		}
		defer root.Close()
		dir, file = int(root.Fd()), rel
		how.Resolve |= unix.RESOLVE_BENEATH
	}
	fd, err := unix.Openat2(dir, file, how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: file, Err: err}
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	return readTail(f, most)
}

// ReadLogTail is ReadTail for a log. podd does not choose the log's location, so only a
// symlink at the end of the path is not followed.
func ReadLogTail(file string, most int64) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readTail(f, most)
}

func readTail(f *os.File, most int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	return io.ReadAll(io.NewSectionReader(f, max(info.Size()-most, 0), most))
}
