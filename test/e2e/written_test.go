package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// written looks at each file of a file system when a process has written to it and
// closes it, whether or not it has a name then, or soon after.
type written struct {
	fd int
	// of says whether a process counts.
	of func(pid int) bool
	// found is called with what a file has; never for one on a tmpfs.
	found func(path string, content []byte)

	done  chan struct{}
	mu    sync.Mutex
	files int
}

// watchWritten begins to look, on the file systems of these directories.
func watchWritten(of func(pid int) bool, found func(path string, content []byte), dirs ...string) (*written, error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_UNLIMITED_QUEUE, unix.O_RDONLY|unix.O_LARGEFILE|unix.O_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch what is written: %w", err)
	}
	for _, dir := range dirs {
		if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, unix.FAN_CLOSE_WRITE, unix.AT_FDCWD, dir); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("watch what is written on the file system of %s: %w", dir, err)
		}
	}
	w := &written{fd: fd, of: of, found: found, done: make(chan struct{})}
	go w.read()
	return w, nil
}

// read ends with close, which the kernel tells by an event of this process' own.
func (w *written) read() {
	defer close(w.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		for some := buf[:n]; len(some) >= int(unsafe.Sizeof(unix.FanotifyEventMetadata{})); {
			var event unix.FanotifyEventMetadata
			if binary.Read(bytes.NewReader(some), binary.NativeEndian, &event) != nil {
				return
			}
			some = some[event.Event_len:]
			if event.Fd < 0 {
				continue
			}
			if last := w.look(int(event.Fd), int(event.Pid)); last {
				return
			}
		}
	}
}

// look takes a file of an event, and says whether it is the one that ends the watch.
func (w *written) look(fd, pid int) (last bool) {
	f := os.NewFile(uintptr(fd), "written")
	defer f.Close()
	path, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if pid == os.Getpid() {
		return filepath.Base(path) == lastWritten
	}
	var on unix.Statfs_t
	if !w.of(pid) || unix.Fstatfs(fd, &on) != nil || on.Type == unix.TMPFS_MAGIC {
		return false
	}
	content := make([]byte, 4<<20)
	n, _ := unix.Pread(fd, content, 0)
	w.mu.Lock()
	w.files++
	w.mu.Unlock()
	w.found(path, content[:max(n, 0)])
	return false
}

// lastWritten is a file's name.
const lastWritten = "last-written"

// close ends the watch when all that was written so far has been looked at, and
// returns how many files that were. dir is on the file system.
func (w *written) close(dir string) (files int, err error) {
	path := filepath.Join(dir, lastWritten)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return 0, err
	}
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.files, unix.Close(w.fd)
}
