package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// InUseError is returned when another process has locked a directory.
type InUseError struct {
	// Dir is the directory; Holder is the process that holds its lock, with process ID PID.
	Dir, Holder string
	PID         int
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s is in use: %s (process %d) has it", e.Dir, e.Holder, e.PID)
}

// lockFile is one of the locks of an instance. The file is created if missing, and never removed.
type lockFile struct {
	name, holderName string
	// keepOverExec keeps the lock over an exec.
	keepOverExec bool
}

var (
	agentLock   = lockFile{name: "agent.lock", holderName: "podd"}
	runtimeLock = lockFile{name: "runtime.lock", holderName: "a container runtime", keepOverExec: true}
	stateLock   = lockFile{name: "containerd.lock", holderName: "a container runtime", keepOverExec: true}
)

// acquire takes the lock in a directory for as long as this process lives. The error is
// an *InUseError if another process holds it.
//
// It is a POSIX record lock, which belongs to the process and not to the descriptor: a
// runtime keeps it over the exec, and its shims, which inherit the descriptor, do not hold
// it after the runtime is gone. Locking twice in one process succeeds.
func (l lockFile) acquire(dir string) error {
	path := filepath.Join(dir, l.name)
	flags := unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW
	if !l.keepOverExec {
		flags |= unix.O_CLOEXEC
	}
	// Never closed: that would release the lock.
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
			return &fs.PathError{Op: "query the lock on", Path: path, Err: err}
		}
		if held.Type != unix.F_UNLCK {
			return &InUseError{Dir: dir, Holder: l.holderName, PID: int(held.Pid)}
		}
		// Released between the two calls: try again.
	}
}

// holder returns the process that holds the lock in a directory; 0 means none.
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
		return 0, &fs.PathError{Op: "query the lock on", Path: path, Err: err}
	}
	if held.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(held.Pid), nil
}
