package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podd/logrotate"
)

// maxSized bounds how many files dirSize counts.
const maxSized = 50_000

func (n *runtimeParts) newRotator() *logrotate.Rotator {
	changed, _ := n.status.Changes() // for as long as podd runs
	return logrotate.New(logrotate.Config{
		Runtime: logrotate.Cache(n.client, changed), MaxSize: n.cfg.ContainerLogMaxSize, MaxFiles: n.cfg.ContainerLogMaxFiles,
		Interval: n.cfg.ContainerLogMonitorInterval, Workers: n.cfg.ContainerLogMaxWorkers,
		Log: n.log, Registerer: n.registry,
	})
}

// dirSize adds up the disk usage of the files below dir on dir's own file system. complete is
// false if there are more than maxSized.
func dirSize(ctx context.Context, dir string) (size int64, complete bool) {
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
			return nil // removed meanwhile
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

// logRemovalsDir holds the checkpoints of pending log removals.
func (n *Node) logRemovalsDir() string { return filepath.Join(n.cfg.RootDir, "log-removals") }

// adoptLogRemovals moves the checkpoints of an earlier podd, which stored them in another
// directory.
func (n *Node) adoptLogRemovals() {
	err := os.Rename(filepath.Join(n.cfg.RootDir, "graves"), n.logRemovalsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.log.Warn("cannot move the checkpoints of an earlier podd: the logs of pods that it removed last stay", "error", err)
	}
}
