package nodestatus

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/wake"
)

// rereadKept is how long it is kept that the Node was read for a pod which nobody asks for
// any more.
const rereadKept = time.Minute

// Reread reads the Node once more before a pod is rejected for the Node's labels or taints: the
// watch of the Node may be behind that of the pods, and whoever labels a node has pods bound
// to it at once (kubernetes/kubernetes#133997). Create it with NewReread, and Run it once; For
// may be called by anybody. One read is in flight at a time: it serves all pods that asked
// before it began.
type Reread struct {
	read  func(context.Context) (*v1.Node, error)
	keep  func(*v1.Node)
	again func()
	log   *slog.Logger
	poke  wake.Signal // next has more

	mu sync.Mutex
	// of has when the Node was read for a pod; zero while it is to be read.
	of map[pod.UID]time.Time
	// next are the pods that the next read is for.
	next []pod.UID
}

// NewReread makes a Reread. read reads the Node past the caches of the apiserver, and returns an
// error in bounded time where that is not possible; keep is called with what it read, and then
// again, after which For is to be asked once more.
func NewReread(read func(context.Context) (*v1.Node, error), keep func(*v1.Node), again func(), log *slog.Logger) *Reread {
	return &Reread{read: read, keep: keep, again: again, log: log, poke: wake.New(), of: map[pod.UID]time.Time{}}
}

// For returns what a pod waits for while the Node is being read for it, and has Run read it;
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
	r.next = append(r.next, uid)
	r.poke.Notify()
	return reading
}

// Run reads the Node for those who ask, until ctx ends. It returns ctx's error.
func (r *Reread) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.poke:
		}
		r.mu.Lock()
		uids := r.next
		r.next = nil
		r.mu.Unlock()
		node, err := r.read(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			r.keep(node)
		} else {
			r.log.Info("cannot read the Node again before a pod is rejected: what was last seen of it decides", "pods", len(uids), "error", err)
		}
		r.mu.Lock()
		for _, uid := range uids {
			r.of[uid] = time.Now()
		}
		r.mu.Unlock()
		r.again()
	}
}
