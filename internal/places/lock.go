package places

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// InUseError says that another process has a directory.
type InUseError struct {
	// Dir is the directory, What has it, as process PID.
	Dir, What string
	PID       int
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s is in use: %s (process %d) has it", e.Dir, e.What, e.PID)
}

// lockFile is one of an instance's locks. It is made where it is missing and stays.
type lockFile struct {
	name, what string
	// overExec: the process becomes another, which goes on holding it.
	overExec bool
}

var (
	agentLock   = lockFile{name: "agent.lock", what: "podd"}
	runtimeLock = lockFile{name: "runtime.lock", what: "a container runtime", overExec: true}
	stateLock   = lockFile{name: "containerd.lock", what: "a container runtime", overExec: true}
)

// in takes the lock in a directory for as long as this process lives. The error is
// an *InUseError where somebody has it.
//
// It is a POSIX record lock: it belongs to the process, not to the descriptor, so
// a runtime keeps it over the exec and its shims, which inherit the descriptor,
// do not hold it when the runtime is gone. Twice in one process is no conflict.
func (l lockFile) in(dir string) error {
	path := filepath.Join(dir, l.name)
	flags := unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW
	if !l.overExec {
		flags |= unix.O_CLOEXEC
	}
	// Open for good: closing the descriptor would release the lock.
	fd, err := unix.Open(path, flags, 0o600)
	if err != nil {
		return &fs.PathError{Op: "open lock file", Path: path, Err: err}
	}
	for {
		want := unix.Flock_t{Type: unix.F_WRLCK}
		err = unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &want)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return &fs.PathError{Op: "lock", Path: path, Err: err}
		}
		held := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &held); err != nil {
			return &fs.PathError{Op: "ask for the lock on", Path: path, Err: err}
		}
		if held.Type != unix.F_UNLCK {
			return &InUseError{Dir: dir, What: l.what, PID: int(held.Pid)}
		}
		// Released between both questions: try again.
	}
}

// holder is the process that has the lock in a directory, 0 if none has.
func (l lockFile) holder(dir string) (int, error) {
	path := filepath.Join(dir, l.name)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, &fs.PathError{Op: "open lock file", Path: path, Err: err}
	}
	defer unix.Close(fd)
	held := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &held); err != nil {
		return 0, &fs.PathError{Op: "ask for the lock on", Path: path, Err: err}
	}
	if held.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(held.Pid), nil
}
