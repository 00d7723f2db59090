package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"podd/config"
	"podd/internal/pod"
	"podd/podfs"
	"podd/userns"
)

// userNamespaces is podenv's way to the ranges of IDs of pods with hostUsers:
// false. The node is asked what it sets aside for them by the first such pod,
// and again by the next as long as there is no answer: the source may be remote
// and away, which is no reason not to run the other pods.
func userNamespaces(cfg *config.Config, dirs podfs.Dirs, ownRuntime bool, log *slog.Logger) func(pod.UID) (first, length uint32, err error) {
	var mu sync.Mutex
	var ranges *userns.Allocator // guarded by mu
	open := func() (*userns.Allocator, error) {
		mu.Lock()
		defer mu.Unlock()
		if ranges != nil {
			return ranges, nil
		}
		if ownRuntime { // which works below StateDir
			if err := reachable(cfg.StateDir); err != nil {
				return nil, fmt.Errorf("can't set `spec.hostUsers: false`: %w", err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		of, err := userns.NodeRange(ctx)
		if err != nil {
			return nil, err
		}
		made, err := userns.New(userns.Config{
			Dirs: dirs, Length: cfg.IDsPerPod, Node: of, Log: log,
		})
		if err != nil {
			return nil, err
		}
		ranges = made
		return ranges, nil
	}
	return func(uid pod.UID) (first, length uint32, err error) {
		all, err := open()
		if err != nil {
			return 0, 0, err
		}
		r, err := all.Of(uid)
		return r.First, r.Length, err
	}
}

// reachable is nil when any user may pass through dir and all above it. Root in
// a pod's user namespace is any user, and its root file system lies below; runc
// says only that something was denied.
func reachable(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("the directory %s is closed (mode %#o) to the pod's users, who must reach their root file system below it: chmod o+x %[1]s, or give another --state-dir", at, info.Mode().Perm())
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}
