package main

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"podd/internal/pod"
	"podd/userns"
)

// userNamespaces is cri's way to the ranges of IDs of pods with hostUsers:
// false. The node is asked what it sets aside for them by the first such pod,
// and again by the next as long as there is no answer: the source may be remote
// and away, which is no reason not to run the other pods.
func (n *node) userNamespaces() func(pod.UID) (first, length uint32, err error) {
	var mu sync.Mutex
	var ranges *userns.Allocator // guarded by mu
	open := func() (*userns.Allocator, error) {
		mu.Lock()
		defer mu.Unlock()
		if ranges != nil {
			return ranges, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		of, err := userns.NodeRange(ctx)
		if err != nil {
			return nil, err
		}
		made, err := userns.New(userns.Config{
			PodsDir: filepath.Join(n.cfg.RootDir, "pods"), Length: n.cfg.IDsPerPod, Node: of, Log: n.log,
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
