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

// userNamespaces returns podenv's function for the ID ranges of pods with hostUsers: false. It
// looks up the IDs that the node reserves for them at the first such pod, and again at the next
// as long as that fails: the source of the IDs may be remote and unavailable, which must not
// affect other pods.
func userNamespaces(cfg *config.Config, dirs podfs.Dirs, ownRuntime bool, log *slog.Logger) func(pod.UID) (first, length uint32, err error) {
	var mu sync.Mutex
	var ranges *userns.Allocator // guarded by mu
	open := func() (*userns.Allocator, error) {
		mu.Lock()
		defer mu.Unlock()
		if ranges != nil {
			return ranges, nil
		}
		if ownRuntime { // its state is below StateDir
			if err := checkTraversable(cfg.StateDir); err != nil {
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
		r, err := all.GetOrAllocate(uid)
		return r.First, r.Length, err
	}
}

// checkTraversable returns nil if any user may traverse dir and its parents. Root in a pod's user
// namespace is an ordinary user, and the pod's root file system is below dir. runc would only
// report that permission was denied.
func checkTraversable(dir string) error {
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
