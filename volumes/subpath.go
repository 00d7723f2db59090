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

// subPath is a part of a volume that one container mounts.
type subPath struct {
	volume    target
	content   string // where the volume lies on the host
	path      string // within it
	container string
	index     int // of the volumeMount
}

// errLeaves does not say where to: that would tell a pod about the host.
var errLeaves = errors.New("it points outside the volume")

// checkSubPath is the path within a volume, cleaned, or "" for the volume. Neither
// its errors nor those of the rest show the path: variables with Secrets may be part
// of it. Who has the manifest's words adds those.
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

// bindSubPath binds the subPath to a place below the pod's directory and
// returns that place. Containers of the pod may change the volume meanwhile:
// only the opened file is trusted, never a path seen before.
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
	place, err := m.subPathPlace(s)
	if err != nil {
		return "", err
	}
	bound, err := sameMount(place, fd)
	if err != nil || bound {
		return place, err
	}
	if err := makePlace(place, fd); err != nil {
		return "", err
	}
	// Not recursive, as the kubelet's.
	source := "/proc/self/fd/" + strconv.Itoa(fd)
	if err := unix.Mount(source, place, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("bind to %s: %w", place, err)
	}
	return place, nil
}

func (m *Mounter) subPathPlace(s subPath) (string, error) {
	if err := safeName("container name", s.container); err != nil {
		return "", err
	}
	return m.dirs.SubPath(s.volume.pod.UID, s.volume.volume.Name, s.container, s.index), nil
}

// sameMount says whether the file behind fd is already mounted at place. What
// else is mounted there is unmounted: the subPath may be another since.
func sameMount(place string, fd int) (bool, error) {
	mounted, err := mountinfo.Mounted(place)
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
	if err := unix.Lstat(place, &have); err != nil {
		return false, &fs.PathError{Op: "lstat", Path: place, Err: err}
	}
	if want.Dev == have.Dev && want.Ino == have.Ino {
		return true, nil
	}
	if err := unix.Unmount(place, unix.UMOUNT_NOFOLLOW); err != nil {
		return false, fmt.Errorf("unmount the previous bind mount on %s: %w", place, err)
	}
	return false, nil
}

// makePlace makes the mount point: a directory for a directory, an empty file
// for everything else.
func makePlace(place string, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o750); err != nil {
		return err
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if info, err := os.Lstat(place); err == nil && info.IsDir() != isDir {
		if err := os.Remove(place); err != nil { // left from a mount of the other type
			return err
		}
	}
	if isDir {
		if err := os.Mkdir(place, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	f, err := os.OpenFile(place, os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// openBeneath opens what the path names within dir. Links within the volume are
// followed (ConfigMaps are made of them); the kernel refuses any step out.
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

// makeBeneath makes the missing directories of the path, with the mode of the
// volume's root (upstream's choice: a container that may write to the volume
// may write to its subPath).
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

// makeStep makes one directory and returns it opened. It never follows a link
// and changes the mode of nothing that it did not make.
func makeStep(parent int, name string, mode uint32) (int, error) {
	if err := unix.Mkdirat(parent, name, mode&0o777); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return -1, errors.New("a part of it is a dangling symbolic link")
		}
		return -1, fmt.Errorf("make a directory of it: %w", err)
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a directory of it: %w", err)
	}
	if err := unix.Fchmod(fd, mode); err != nil { // mkdir obeyed the umask
		unix.Close(fd)
		return -1, fmt.Errorf("set the mode of a directory of it: %w", err)
	}
	return fd, nil
}
