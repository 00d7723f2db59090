package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"podd/internal/filewatch"
	"podd/internal/wake"
)

// watchMask selects these events: a file is complete when its writer closes it or when it
// is moved into place.
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
		if wake.Sleep(ctx, time.Second) {
			d.wake()
		}
	}
}

// watchOnce returns when a watched directory is gone or cannot be watched.
func (d *Dir) watchOnce(ctx context.Context) error {
	i, err := filewatch.NewInotify()
	if err != nil {
		return err
	}
	defer i.File.Close()
	if err := os.MkdirAll(d.cfg.Dir, 0o755); err != nil {
		return err
	}
	dirs := map[int32]string{}
	for _, dir := range append([]string{d.cfg.Dir}, d.cfg.ExtraDirs...) {
		wd, err := i.Add(dir, watchMask)
		if err != nil {
			if dir != d.cfg.Dir && errors.Is(err, unix.ENOENT) {
				continue
			}
			return fmt.Errorf("watch %s: %w", dir, err)
		}
		dirs[wd] = dir
	}
	defer context.AfterFunc(ctx, func() { i.File.SetReadDeadline(time.Unix(1, 0)) })()
	d.wake() // for changes before the watch
	buf := make([]byte, 64<<10)
	for {
		events, err := i.Read(buf)
		if err != nil {
			return err
		}
		if gone := d.handleEvents(events, dirs); gone {
			return errors.New("an image directory was moved or removed")
		}
		d.wake()
	}
}

// handleEvents records the files that are complete, and reports whether a directory is
// gone.
func (d *Dir) handleEvents(all []filewatch.Event, dirs map[int32]string) (gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range all {
		gone = gone || e.Mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0
		if e.Mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0 && isArchiveName(e.Name()) {
			d.closedFiles[filepath.Join(dirs[e.Watch], e.Name())] = struct{}{}
			d.unsettleLocked()
		}
	}
	return gone
}
