package logrotate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dir is the directory of a container's log, held open. Pods may write there (log
// shippers run with a hostPath of /var/log), so podd trusts nothing in it. No symlink
// leads to it or out of it, or podd would compress, replace and remove the node's files.
type dir struct{ file *os.File }

// openDir opens the directory of <base>/<pod>/<container>/<n>.log, and returns
// the log's name in it. base may lie behind a symlink, which only the node's
// administrator can make; what is below may not.
func openDir(log string) (dir, string, error) {
	container, name := filepath.Split(filepath.Clean(log))
	container = filepath.Clean(container)
	pod := filepath.Dir(container)
	base, err := os.Open(filepath.Dir(pod))
	if err != nil {
		return dir{}, "", err
	}
	defer base.Close()
	rel := filepath.Join(filepath.Base(pod), filepath.Base(container))
	fd, err := unix.Openat2(int(base.Fd()), rel, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
	if errors.Is(err, unix.ELOOP) {
		err = errors.New("its path contains a symlink, which is not followed")
	}
	if err != nil {
		return dir{}, "", &fs.PathError{Op: "open the log's directory", Path: container, Err: err}
	}
	return dir{os.NewFile(uintptr(fd), container)}, name, nil
}

func (d dir) fd() int { return int(d.file.Fd()) }

func (d dir) close() { _ = d.file.Close() } // was only read

func (d dir) fault(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: filepath.Join(d.file.Name(), name), Err: err}
}

// files are the names of the regular files in it that have the prefix.
func (d dir) files(prefix string) ([]string, error) {
	if _, err := d.file.Seek(0, 0); err != nil {
		return nil, err
	}
	entries, err := d.file.ReadDir(-1)
	var names []string
	for _, e := range entries {
		if n := e.Name(); len(n) > len(prefix) && n[:len(prefix)] == prefix && e.Type().IsRegular() {
			names = append(names, n)
		}
	}
	return names, err
}

// there says whether anything has the name.
func (d dir) there(name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

func (d dir) rename(from, to string) error {
	return d.fault("rename", from, unix.Renameat(d.fd(), from, d.fd(), to))
}

// link gives a file a second name, which must be free.
func (d dir) link(from, to string) error {
	return d.fault("link", to, unix.Linkat(d.fd(), from, d.fd(), to, 0))
}

func (d dir) remove(name string) error {
	return d.fault("remove", name, unix.Unlinkat(d.fd(), name, 0))
}

// open opens a regular file for reading, and nothing else.
func (d dir) open(name string) (*os.File, fs.FileInfo, error) {
	f, err := d.openat(name, unix.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO does not hang it
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.Name())
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// create makes a new file.
func (d dir) create(name string, mode fs.FileMode) (*os.File, error) {
	return d.openat(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, uint32(mode.Perm()))
}

func (d dir) openat(name string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(d.fd(), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, d.fault("open", name, err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(d.file.Name(), name)), nil
}
