package file

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"podd/podconfig/manifest"
)

// Patterns describes the names of manifests in words.
const Patterns = "*.yaml, *.yml, *.json and *.manifest without a dot in front"

// IsManifest reports whether a directory entry of that name is a manifest: *.yaml, *.yml,
// *.json or *.manifest, not beginning with a dot.
func IsManifest(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json", ".manifest": // kops writes the last
		return true
	}
	return false
}

// Unreadable is the reason why a manifest cannot be read at all, as a sentence, with advice.
type Unreadable struct {
	Message, Hint string
	// NotFound says that there is no such file.
	NotFound bool
}

func (u *Unreadable) Error() string { return u.Message }

// stamp shows whether a file has changed since it was read.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime time.Time
}

// Read returns the content of a manifest. It never blocks on anything other than a regular
// file, and never reads more than manifest.MaxBytes. The error is an *Unreadable.
func Read(path string) ([]byte, error) {
	data, _, err := readWithStamp(path)
	return data, err
}

// stat returns the stamp of a file, following symlinks.
func stat(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, explain(path, err)
	}
	return stampOf(info), nil
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), mtime: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.dev, s.ino, s.ctime = st.Dev, st.Ino, time.Unix(st.Ctim.Unix())
	}
	return s
}

func readWithStamp(path string) ([]byte, stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, stamp{}, explain(path, err)
	}
	s := stampOf(info)
	if u := checkType(info); u != nil {
		return nil, s, u
	}
	// O_NONBLOCK: open returns even if the file has become a FIFO since.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, s, explain(path, err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, s, explain(path, err)
	}
	s = stampOf(info)
	if u := checkType(info); u != nil {
		return nil, s, u
	}
	data, err := io.ReadAll(io.LimitReader(f, manifest.MaxBytes+1))
	if err != nil {
		return nil, s, explain(path, err)
	}
	return data, s, nil
}

// checkType returns the reason why an existing file is no manifest, or nil.
func checkType(info fs.FileInfo) *Unreadable {
	const aside = "move it out of the manifest directory"
	switch mode := info.Mode(); {
	case mode.IsDir():
		return &Unreadable{Message: "this is a directory, and podd does not look into subdirectories", Hint: "put the manifests into the manifest directory itself"}
	case mode&fs.ModeNamedPipe != 0:
		return &Unreadable{Message: "this is a named pipe (FIFO), not a file", Hint: aside}
	case mode&fs.ModeSocket != 0:
		return &Unreadable{Message: "this is a socket, not a file", Hint: aside}
	case mode&fs.ModeDevice != 0:
		return &Unreadable{Message: "this is a device, not a file", Hint: aside}
	case !mode.IsRegular():
		return &Unreadable{Message: "this is not a regular file", Hint: aside}
	case info.Size() > manifest.MaxBytes:
		message, hint := manifest.TooLarge(info.Size())
		return &Unreadable{Message: message, Hint: hint}
	}
	return nil
}

// explain turns the system's error into a sentence.
func explain(path string, err error) *Unreadable {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if target, linkErr := os.Readlink(path); linkErr == nil {
			return &Unreadable{Message: "this is a symlink to " + target + ", which does not exist", Hint: "create the target, or remove the link"}
		}
		return &Unreadable{Message: "there is no such file", NotFound: true}
	case errors.Is(err, unix.ELOOP):
		return &Unreadable{Message: "this symlink is part of a loop", Hint: "remove it"}
	case errors.Is(err, fs.ErrPermission):
		return &Unreadable{Message: "podd may not read it: permission denied", Hint: "chmod it so that podd's user can read it"}
	case errors.Is(err, unix.ENXIO):
		return &Unreadable{Message: "this is a socket or a pipe, not a file", Hint: "move it out of the manifest directory"}
	}
	var path1 *fs.PathError
	if errors.As(err, &path1) {
		err = path1.Err
	}
	return &Unreadable{Message: "cannot read it: " + err.Error(), Hint: "check the disk"}
}
