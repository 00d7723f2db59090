package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lock is held by the one podd that uses a state directory. The kernel releases it when the
// process ends, for any reason, so it is never stale.
type lock struct{ file *os.File }

// acquireLock locks the file beside the socket.
func acquireLock(socket string) (*lock, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	f, err := os.OpenFile(socket+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("open %s.lock: permission denied; podd run needs root", socket)
	}
	if err != nil {
		return nil, fmt.Errorf("open the lock beside the socket: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 20)
		n, _ := f.ReadAt(holder, 0) // used only in the message
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s.lock: %w", socket, err)
		}
		who := ""
		if pid := strings.TrimSpace(string(holder[:n])); pid != "" {
			who = " (process " + pid + ")"
		}
		return nil, fmt.Errorf("another podd%s serves %s: stop it first (systemctl stop podd), or give this one its own --state-dir and --root-dir", who, socket)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write %s.lock: %w", socket, err)
	}
	return &lock{f}, nil
}

// release unlocks. The lock file stays: if it were removed, two processes could lock two
// different files of the same name.
func (l *lock) release() { _ = l.file.Close() }

// listenUnix creates the socket. The caller holds the lock, so an existing socket is stale. The
// socket is created in a directory that only the owner can enter and then moved into place, so
// nobody can connect before its mode is set.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("listen on %s: the file is not a socket; remove it", path)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // empty or useless by now
	made := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}
