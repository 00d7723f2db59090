package nodestatus

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// rereadKept is how long it is kept that the Node was read for a pod which nobody asks for
// any more.
const rereadKept = time.Minute

// Reread reads the Node once more before a pod is rejected for the Node's labels or taints: the
// watch of the Node may be behind that of the pods, and whoever labels a node has pods bound
// to it at once (kubernetes/kubernetes#133997). Create it with NewReread; For may be called by
// anybody.
type Reread struct {
	read  func(context.Context) (*v1.Node, error)
	keep  func(*v1.Node)
	again func()
	log   *slog.Logger

	mu sync.Mutex
	// of has when the Node was read for a pod; zero while it is being read.
	of map[pod.UID]time.Time
}

// NewReread makes a Reread. read reads the Node past the caches of the apiserver, and returns an
// error in bounded time where that is not possible; keep is called with what it read, and then
// again, after which For is to be asked once more.
func NewReread(read func(context.Context) (*v1.Node, error), keep func(*v1.Node), again func(), log *slog.Logger) *Reread {
	return &Reread{read: read, keep: keep, again: again, log: log, of: map[pod.UID]time.Time{}}
}

// For returns what a pod waits for while the Node is being read for it, and begins to read it;
// it does not block.
// When that is over it returns the empty string once: the pod may be judged by the newest
// version there is, which is that of the watch if the apiserver does not answer.
func (r *Reread) For(uid pod.UID) (waits string) {
	const reading = "waiting for the Node's labels and taints to be read again"
	r.mu.Lock()
	defer r.mu.Unlock()
	at, asked := r.of[uid]
	switch {
	case asked && at.IsZero():
		return reading
	case asked:
		delete(r.of, uid)
		return ""
	}
	for other, at := range r.of {
		if !at.IsZero() && time.Since(at) > rereadKept {
			delete(r.of, other)
		}
	}
	r.of[uid] = time.Time{}
	go r.readFor(uid)
	return reading
}

func (r *Reread) readFor(uid pod.UID) {
	node, err := r.read(context.Background()) // bounded: it outlives podd by no more than a request
	if err == nil {
		r.keep(node)
	} else {
		r.log.Info("cannot read the Node again before a pod is rejected: what was last seen of it decides", "uid", uid, "error", err)
	}
	r.mu.Lock()
	r.of[uid] = time.Now()
	r.mu.Unlock()
	r.again()
}
