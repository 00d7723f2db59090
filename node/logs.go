package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"podd/cri"
	"podd/internal/pod"
	"podd/logrotate"
)

// logsListed is for how long a list of running containers is used while no pod's
// status changes: every start and exit changes one.
const logsListed = time.Minute

// runningLogs caches the list of logs while nothing happens: with 58 pods, a list
// every ten seconds would be half of what podd and containerd do when idle.
type runningLogs struct {
	*cri.Client
	changed <-chan struct{} // capacity 1, from status
	logs    []pod.ContainerLog
	at      time.Time // of logs
}

// RunningLogs is only called by the rotator's loop.
func (r *runningLogs) RunningLogs(ctx context.Context) ([]pod.ContainerLog, error) {
	select {
	case <-r.changed:
	default:
		if time.Since(r.at) < logsListed {
			return r.logs, nil
		}
	}
	logs, err := r.Client.RunningLogs(ctx)
	if err != nil {
		r.at = time.Time{}
		return nil, err
	}
	r.logs, r.at = logs, time.Now()
	return logs, nil
}

// maxSized bounds how many files sizeOf counts.
const maxSized = 50_000

func (n *parts) newRotator() *logrotate.Rotator {
	changed, _ := n.status.Changes() // for as long as podd runs
	return logrotate.New(logrotate.Config{
		Runtime: &runningLogs{Client: n.client, changed: changed}, MaxSize: n.cfg.ContainerLogMaxSize, MaxFiles: n.cfg.ContainerLogMaxFiles,
		Interval: n.cfg.ContainerLogMonitorInterval, Workers: n.cfg.ContainerLogMaxWorkers,
		Log: n.log, Registerer: n.registry,
	})
}

// sizeOf adds up the disk usage of the files below dir on its own file system;
// complete is false if there were too many.
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

func sameDisk(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Dev == y.Dev
}

// logRemovalsDir has the checkpoints of logs to be removed.
func (n *Node) logRemovalsDir() string { return filepath.Join(n.cfg.RootDir, "log-removals") }

// adoptLogRemovals moves the checkpoints of an earlier podd, which kept them in another
// directory.
func (n *Node) adoptLogRemovals() {
	err := os.Rename(filepath.Join(n.cfg.RootDir, "graves"), n.logRemovalsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.log.Warn("cannot move the checkpoints of an earlier podd: the logs of pods that it removed last stay", "error", err)
	}
}
