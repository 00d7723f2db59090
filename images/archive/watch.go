package archive

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// watchMask: a file is complete when its writer closes it or when it is moved
// into place. fsnotify does not report the first, so inotify is used directly.
const watchMask = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE |
	unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// watch requests a sync for every change of the image directories until ctx is done.
// If one of them disappears, all are watched anew, and Dir is created again. An extra
// directory that does not exist at that time is not watched.
func (d *Dir) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if err := d.watchOnce(ctx); err != nil && ctx.Err() == nil {
			d.log.Debug("cannot watch image directories", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
			d.wake()
		}
	}
}

// watchOnce returns when a watched directory is gone or cannot be watched.
func (d *Dir) watchOnce(ctx context.Context) error {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	defer f.Close()
	if err := os.MkdirAll(d.cfg.Dir, 0o755); err != nil {
		return err
	}
	dirs := map[int32]string{}
	for _, dir := range append([]string{d.cfg.Dir}, d.cfg.Extra...) {
		wd, err := unix.InotifyAddWatch(fd, dir, watchMask)
		if err != nil {
			if dir != d.cfg.Dir && errors.Is(err, unix.ENOENT) {
				continue
			}
			return fmt.Errorf("watch %s: %w", dir, err)
		}
		dirs[int32(wd)] = dir
	}
	defer context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })()
	d.wake() // for changes before the watch
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return err
		}
		if gone := d.events(buf[:n], dirs); gone {
			return errors.New("an image directory was moved or removed")
		}
		d.wake()
	}
}

// events records the files that are complete, and reports whether a directory is
// gone.
func (d *Dir) events(buf []byte, dirs map[int32]string) (gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(buf) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(buf))
		mask := binary.NativeEndian.Uint32(buf[4:])
		size := int(binary.NativeEndian.Uint32(buf[12:]))
		name := unix.ByteSliceToString(buf[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+size])
		buf = buf[unix.SizeofInotifyEvent+size:]
		gone = gone || mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0
		if mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0 && isArchiveName(name) {
			d.closed[filepath.Join(dirs[wd], name)] = struct{}{}
			d.unsettleLocked()
		}
	}
	return gone
}
