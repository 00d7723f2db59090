package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RunningError says that another runtime has the state directory.
type RunningError struct {
	StateDir string
	PID      int
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("a container runtime with state directory %s is already running (process %d); podd run adopts it by itself", e.StateDir, e.PID)
}

// Exec replaces this process by containerd with the configuration that
// WriteConfig wrote, and returns only on error. The state directory is locked
// for as long as containerd lives.
func (s *Settings) Exec() error {
	if os.Geteuid() != 0 {
		return errors.New("the container runtime needs root: run it with sudo, or as a systemd service")
	}
	path := filepath.Join(s.BinDir, "containerd")
	if lacks := lacking(s.BinDir); lacks != "" {
		return &MissingError{Looked: []string{s.BinDir + " (" + lacks + ")"}}
	}
	if err := lock(s.lockFile(), s.StateDir); err != nil {
		return err
	}
	// The first of two values would win, so the old one goes.
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PATH=") })
	env = append(env, "PATH="+searchPath(s.BinDir, os.Getenv("PATH")))
	err := syscall.Exec(path, []string{"containerd", "--config", s.configFile()}, env)
	return fmt.Errorf("exec %s: %w", path, err)
}

// lock takes a POSIX record lock: it belongs to the process, not to the
// descriptor, so containerd keeps it over the exec and its shims, which inherit
// the descriptor, do not hold it when containerd is gone.
func lock(path, stateDir string) error {
	// No O_CLOEXEC: closing the descriptor would release the lock.
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT, 0o600)
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
			return &RunningError{StateDir: stateDir, PID: int(held.Pid)}
		}
		// Released between both questions: try again.
	}
}

// searchPath puts the bundle first and the directories last that a service's or
// cron's PATH lacks: containerd and the plugins call iptables, nft and mount.
func searchPath(binDir, path string) string {
	dirs := append([]string{binDir}, filepath.SplitList(path)...)
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if !strings.Contains(":"+path+":", ":"+dir+":") {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}
