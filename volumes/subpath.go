package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
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

// checkSubPath returns the cleaned path within a volume, or "" for the whole volume. The
// errors of subPaths do not show the path, which may include the values of Secrets
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
// point. made says whether it created a directory because the volume lacked the path.
// Containers of the pod may change the volume meanwhile, so it trusts only the opened file,
// never a path that was checked before.
func (m *Mounter) bindSubPath(s subPath) (point string, made bool, err error) {
	volume, err := unix.Open(s.content, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false, explainDeadMount(&fs.PathError{Op: "open", Path: s.content, Err: err})
	}
	defer unix.Close(volume)
	fd, err := openBeneath(volume, s.path)
	if errors.Is(err, unix.ENOENT) {
		fd, err = makeBeneath(volume, s.path)
		made = true
	}
	if err != nil {
		return "", false, explainDeadMount(err)
	}
	defer unix.Close(fd)
	if point, err = m.subPathMountPoint(s); err != nil {
		return "", false, err
	}
	bound, err := reuseMount(point, fd)
	if err != nil || bound {
		return point, made, err
	}
	if err := makeSubPathMountPoint(point, fd); err != nil {
		return "", false, err
	}
	// Not recursive, as in the kubelet.
	if err := unix.Mount(procPath(fd), point, "", unix.MS_BIND, ""); err != nil {
		return "", false, fmt.Errorf("bind to %s: %w", point, err)
	}
	return point, made, nil
}

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// deadMountErrors are the errors of a mount after its server or disk has gone.
var deadMountErrors = []error{unix.ENOTCONN, unix.ESTALE, unix.EIO, unix.ENODEV, unix.ENXIO, unix.EHOSTDOWN, unix.ESHUTDOWN}

// explainDeadMount adds what to do to the error of a volume that is itself a dead mount.
func explainDeadMount(err error) error {
	if !slices.ContainsFunc(deadMountErrors, func(d error) bool { return errors.Is(err, d) }) {
		return err
	}
	return fmt.Errorf("%w (the volume's server or disk is gone: once the volume is mounted anew, the container starts)", err)
}

func (m *Mounter) subPathMountPoint(s subPath) (string, error) {
	if err := safeName("container name", s.container); err != nil {
		return "", err
	}
	return m.dirs.SubPath(s.volume.pod.UID, s.volume.volume.Name, s.container, s.index), nil
}

// reuseMount says whether the file behind fd is already mounted at point. It unmounts
// anything else there: the subPath may lead to another file by now, or the server of the
// mount may have ended (kubernetes/kubernetes#138856). It reads the mount table to find
// out, because a dead mount cannot be asked.
func reuseMount(point string, fd int) (bool, error) {
	for {
		mounted, err := isMountPoint(point)
		if err != nil || !mounted { // saves reading the table at a first start
			return false, err
		}
		table, err := mountinfo.GetMounts(nil)
		if err != nil {
			return false, fmt.Errorf("read the mount table: %w", err)
		}
		at := topmostMount(table, func(i *mountinfo.Info) bool { return i.Mountpoint == point })
		if at == nil {
			return false, nil
		}
		same, err := isMountedFile(table, at, fd)
		if err != nil || same {
			return same, err
		}
		// Detached, because it may be busy, and a dead one may not be flushed. A container
		// that uses it keeps its own mount of it.
		if err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			return false, fmt.Errorf("unmount the previous bind mount on %s: %w", point, err)
		}
	}
}

// isMountPoint says whether something is mounted at point, without asking it: the kernel
// stops where the lookup would enter the mount.
func isMountPoint(point string) (bool, error) {
	dir, err := unix.Open(filepath.Dir(point), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "open", Path: filepath.Dir(point), Err: err}
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, filepath.Base(point), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV,
	})
	switch {
	case err == nil:
		return false, unix.Close(fd)
	case errors.Is(err, unix.EXDEV):
		return true, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	}
	return false, &fs.PathError{Op: "open", Path: point, Err: err}
}

// isMountedFile says whether the file behind fd is the mounted one. It asks the mounted file
// system only if it is the file's own, which has just given an answer.
func isMountedFile(table []*mountinfo.Info, at *mountinfo.Info, fd int) (bool, error) {
	var want, have unix.Stat_t
	if err := unix.Fstat(fd, &want); err != nil { // the path may be known although the server is gone
		return false, explainDeadMount(err)
	}
	own, err := mountOfFD(table, fd)
	if err != nil {
		return false, err
	}
	if own != nil && (own.Major != at.Major || own.Minor != at.Minor) {
		return false, nil
	}
	if err := unix.Lstat(at.Mountpoint, &have); err != nil {
		return false, nil // whatever it is, no container can use it
	}
	return want.Dev == have.Dev && want.Ino == have.Ino, nil
}

// mountOfFD returns the mount through which fd was opened, or nil if the table does not
// have it.
func mountOfFD(table []*mountinfo.Info, fd int) (*mountinfo.Info, error) {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd)) // unlike statx(2), this asks no server
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		value, found := strings.CutPrefix(line, "mnt_id:")
		if !found {
			continue
		}
		id, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("mount of descriptor %d: %w", fd, err)
		}
		return topmostMount(table, func(i *mountinfo.Info) bool { return i.ID == id }), nil
	}
	return nil, nil
}

// topmostMount returns the topmost of the mounts that are wanted, or nil.
func topmostMount(table []*mountinfo.Info, wanted func(*mountinfo.Info) bool) *mountinfo.Info {
	for _, i := range slices.Backward(table) {
		if wanted(i) {
			return i
		}
	}
	return nil
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
