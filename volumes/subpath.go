package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// subPath is a subPath of a volume that one container mounts.
type subPath struct {
	volume    target
	content   string // where the volume is on the host
	path      string // within the volume
	container string
	index     int // of the volumeMount
}

// errLeaves does not say where the path leads: that would leak facts about the host.
var errLeaves = errors.New("it points outside the volume")

// checkSubPath returns the cleaned path within a volume, or "" for the whole volume. The
// errors in this file do not show the path, which may include the values of Secrets
// through variables; subPathError adds the unexpanded one.
func checkSubPath(sub string) (string, error) {
	if sub == "" {
		return "", nil
	}
	if path.IsAbs(sub) {
		return "", errors.New("it must not be an absolute path")
	}
	for part := range strings.SplitSeq(sub, "/") {
		if part == ".." {
			return "", errors.New("it must not contain '..'")
		}
	}
	if strings.ContainsRune(sub, 0) {
		return "", errors.New("it contains a NUL byte")
	}
	return path.Clean(sub), nil
}

// bindSubPath bind-mounts the subPath below the pod's directory and returns the mount
// point. Containers of the pod may change the volume meanwhile, so only the opened file
// is trusted, never a path that was checked before.
func (m *Mounter) bindSubPath(s subPath) (string, error) {
	volume, err := unix.Open(s.content, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: s.content, Err: err}
	}
	defer unix.Close(volume)
	fd, err := openBeneath(volume, s.path)
	if errors.Is(err, unix.ENOENT) {
		if err = makeBeneath(volume, s.path); err == nil {
			fd, err = openBeneath(volume, s.path)
		}
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	point, err := m.subPathMountPoint(s)
	if err != nil {
		return "", err
	}
	bound, err := sameMount(point, fd)
	if err != nil || bound {
		return point, err
	}
	if err := makeSubPathMountPoint(point, fd); err != nil {
		return "", err
	}
	// Not recursive, as in the kubelet.
	source := "/proc/self/fd/" + strconv.Itoa(fd)
	if err := unix.Mount(source, point, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("bind to %s: %w", point, err)
	}
	return point, nil
}

func (m *Mounter) subPathMountPoint(s subPath) (string, error) {
	if err := safeName("container name", s.container); err != nil {
		return "", err
	}
	return m.dirs.SubPath(s.volume.pod.UID, s.volume.volume.Name, s.container, s.index), nil
}

// sameMount says whether the file behind fd is already mounted at point. Anything else
// there is unmounted: the subPath may lead to another file by now.
func sameMount(point string, fd int) (bool, error) {
	mounted, err := mountinfo.Mounted(point)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !mounted {
		return false, err
	}
	var want, have unix.Stat_t
	if err := unix.Fstat(fd, &want); err != nil {
		return false, err
	}
	if err := unix.Lstat(point, &have); err != nil {
		return false, &fs.PathError{Op: "lstat", Path: point, Err: err}
	}
	if want.Dev == have.Dev && want.Ino == have.Ino {
		return true, nil
	}
	if err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW); err != nil {
		return false, fmt.Errorf("unmount the previous bind mount on %s: %w", point, err)
	}
	return false, nil
}

// makeSubPathMountPoint creates the mount point: a directory for a directory, an empty
// file for everything else.
func makeSubPathMountPoint(point string, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(point), 0o750); err != nil {
		return err
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if info, err := os.Lstat(point); err == nil && info.IsDir() != isDir {
		if err := os.Remove(point); err != nil { // left by a mount of the other type
			return err
		}
	}
	if isDir {
		if err := os.Mkdir(point, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	f, err := os.OpenFile(point, os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// openBeneath opens a path within dir. Links within the volume are followed (ConfigMaps
// consist of them); the kernel rejects any that leads out.
func openBeneath(dir int, name string) (int, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.EXDEV):
		return -1, errLeaves
	case errors.Is(err, unix.ELOOP):
		return -1, errors.New("it goes through a loop of symbolic links, or a link that may not be followed")
	case err != nil:
		return -1, err
	}
	return fd, nil
}

// makeBeneath creates the missing directories of the path, with the mode of the volume's
// root as upstream does: a container that may write to the volume may then write to its
// subPath.
func makeBeneath(volume int, name string) error {
	var root unix.Stat_t
	if err := unix.Fstat(volume, &root); err != nil {
		return err
	}
	if root.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New("the volume is a file, not a directory")
	}
	parts := strings.Split(name, "/")
	parent, err := unix.Dup(volume)
	if err != nil {
		return err
	}
	for i := range parts {
		next, err := openBeneath(volume, path.Join(parts[:i+1]...))
		if errors.Is(err, unix.ENOENT) {
			next, err = makeStep(parent, parts[i], root.Mode&0o7777)
		}
		unix.Close(parent)
		if err != nil {
			return err
		}
		parent = next
	}
	return unix.Close(parent)
}

// makeStep creates one directory and opens it. It never follows a link, and changes the
// mode of nothing that it did not create.
func makeStep(parent int, name string, mode uint32) (int, error) {
	if err := unix.Mkdirat(parent, name, mode&0o777); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return -1, errors.New("a part of it is a dangling symbolic link")
		}
		return -1, fmt.Errorf("create one of its directories: %w", err)
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open one of its directories: %w", err)
	}
	if err := unix.Fchmod(fd, mode); err != nil { // mkdir obeyed the umask
		unix.Close(fd)
		return -1, fmt.Errorf("set the mode of one of its directories: %w", err)
	}
	return fd, nil
}
