package main

import (
	"context"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podd/logrotate"
)

// maxSized bounds how many files sizeOf looks at.
const maxSized = 50_000

func (n *node) newRotator() *logrotate.Rotator {
	return logrotate.New(logrotate.Config{
		Runtime: n.client, MaxSize: n.cfg.ContainerLogMaxSize, MaxFiles: n.cfg.ContainerLogMaxFiles,
		Interval: n.cfg.ContainerLogMonitorInterval, Workers: n.cfg.ContainerLogMaxWorkers,
		Log: n.log, Registerer: n.registry,
	})
}

// sizeOf adds up what the files below dir take on its own disk; complete is
// false when there were too many to look at.
func sizeOf(ctx context.Context, dir string) (size int64, complete bool) {
	var top unix.Stat_t
	if unix.Lstat(dir, &top) != nil {
		return 0, true
	}
	left := maxSized
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if left--; left < 0 || ctx.Err() != nil {
			return fs.SkipAll
		}
		var s unix.Stat_t
		if err != nil || unix.Lstat(path, &s) != nil {
			return nil // gone meanwhile
		}
		if s.Dev != top.Dev { // a volume's own mount
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		size += s.Blocks * 512
		return nil
	})
	return size, left >= 0
}

func sameDisk(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Dev == y.Dev
}
