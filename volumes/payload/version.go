package payload

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"podd/volumes/ownership"
)

// dirMode makes directories accessible to everybody: the modes of the files control who
// may read them.
const dirMode = 0o755

// mode returns the mode of a file or directory, with the group's permissions if there is
// a group.
func (w *writer) mode(mode uint32, dir bool) uint32 {
	if w.group == nil {
		return mode
	}
	return ownership.Mode(mode, dir, true)
}

// writeDir writes a directory with its tree. It sets the mode last, so that only podd
// can enter the directory before it is complete.
func (w *writer) writeDir(parent int, name string, t *tree) error {
	if err := w.step("mkdir", func() error { return unix.Mkdirat(parent, name, 0o700) }); err != nil {
		return fmt.Errorf("make directory %s: %w", name, err)
	}
	fd, err := openDir(parent, name)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", name, err)
	}
	defer unix.Close(fd)
	for name, f := range t.files {
		if err := w.writeFile(fd, name, f); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	for name, below := range t.dirs {
		if err := w.writeDir(fd, name, below); err != nil {
			return err
		}
	}
	if err := w.setOwnership(fd, 0, w.mode(dirMode, true)); err != nil {
		return fmt.Errorf("set owner and mode of directory %s: %w", name, err)
	}
	return nil
}

func (w *writer) writeFile(dir int, name string, f File) error {
	var fd int
	err := w.step("create", func() (err error) {
		fd, err = unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	if err := w.step("write", func() error { _, err := file.Write(f.Data); return err }); err != nil {
		return err
	}
	if err := w.setOwnership(fd, f.UID, w.mode(f.Mode, false)); err != nil {
		return err
	}
	return w.step("close", file.Close)
}

// setOwnership sets owner, group and mode, regardless of the umask and the directory's setgid bit.
func (w *writer) setOwnership(fd int, uid int64, mode uint32) error {
	return w.step("own", func() error {
		group := -1
		if w.group != nil {
			group = int(*w.group)
		}
		if group >= 0 || uid != 0 {
			if err := unix.Fchown(fd, int(uid), group); err != nil {
				return err
			}
		}
		return unix.Fchmod(fd, mode)
	})
}

// sameVersion says whether the version of that name equals the tree: its files, their content,
// modes and group.
func (w *writer) sameVersion(name string, t *tree) bool { return w.sameDir(w.dirFD, name, t) }

func (w *writer) sameDir(parent int, name string, t *tree) bool {
	fd, err := openDir(parent, name)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	names, err := readNames(fd)
	if err != nil || len(names) != len(t.files)+len(t.dirs) || !w.matches(fd, 0, w.mode(dirMode, true), unix.S_IFDIR) {
		return false
	}
	for name, f := range t.files {
		if !w.sameFile(fd, name, f) {
			return false
		}
	}
	for name, below := range t.dirs {
		if !w.sameDir(fd, name, below) {
			return false
		}
	}
	return true
}

func (w *writer) sameFile(dir int, name string, want File) bool {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if !w.matches(fd, want.UID, w.mode(want.Mode, false), unix.S_IFREG) {
		return false
	}
	have := make([]byte, len(want.Data)+1)
	n, err := io.ReadFull(f, have)
	return err != nil && n == len(want.Data) && bytes.Equal(have[:n], want.Data)
}

// matches compares type, mode, owner and group.
func (w *writer) matches(fd int, uid int64, mode, kind uint32) bool {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false
	}
	return st.Mode == mode|kind && int64(st.Uid) == uid && (w.group == nil || int64(st.Gid) == *w.group)
}

func openDir(parent int, name string) (int, error) {
	return unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}
