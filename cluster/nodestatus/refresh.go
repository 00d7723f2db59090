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

// refreshTTL is how long NodeRefresher remembers a finished read for a pod if nobody asks about
// it again.
const refreshTTL = time.Minute

// NodeRefresher reads the Node once more before a pod is rejected because of the Node's labels or
// taints. The watch of the Node may lag behind the watch of the pods, and pods are bound to a
// node as soon as somebody labels it (kubernetes/kubernetes#133997). Create it with
// NewNodeRefresher, and Run it once. Any goroutine may call Refresh. One read is in flight at a
// time; it serves all pods that asked before it began.
type NodeRefresher struct {
	read           func(context.Context) (*v1.Node, error)
	observe        func(*v1.Node)
	retryAdmission func()
	log            *slog.Logger
	poke           wake.Signal // pending has more

	mu sync.Mutex
	// readAt has the time when the Node was read for a pod; zero while the read is pending.
	readAt map[pod.UID]time.Time
	// pending holds the pods that the next read serves.
	pending []pod.UID
}

// NewNodeRefresher returns a NodeRefresher. read reads the Node past the apiserver's caches,
// and returns an error in bounded time if it cannot. observe gets the result of each successful
// read. After every read, retryAdmission is called; it must make the callers ask Refresh once
// more.
func NewNodeRefresher(read func(context.Context) (*v1.Node, error), observe func(*v1.Node), retryAdmission func(),
	log *slog.Logger) *NodeRefresher {
	return &NodeRefresher{
		read: read, observe: observe, retryAdmission: retryAdmission, log: log, poke: wake.New(), readAt: map[pod.UID]time.Time{},
	}
}

// Refresh returns what a pod waits for while the Node is being read for it, and makes Run read the
// Node. It does not block. After the read it returns the empty string once: the caller may then
// judge the pod by the newest version known. If the apiserver does not answer, that is the
// watch's version.
func (r *NodeRefresher) Refresh(uid pod.UID) (waits string) {
	const reading = "waiting for the Node's labels and taints to be read again"
	r.mu.Lock()
	defer r.mu.Unlock()
	at, asked := r.readAt[uid]
	switch {
	case asked && at.IsZero():
		return reading
	case asked:
		delete(r.readAt, uid)
		return ""
	}
	for other, at := range r.readAt {
		if !at.IsZero() && time.Since(at) > refreshTTL {
			delete(r.readAt, other)
		}
	}
	r.readAt[uid] = time.Time{}
	r.pending = append(r.pending, uid)
	r.poke.Notify()
	return reading
}

// Run reads the Node for the pods that need it, until ctx ends. It returns ctx's error.
func (r *NodeRefresher) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.poke:
		}
		r.mu.Lock()
		uids := r.pending
		r.pending = nil
		r.mu.Unlock()
		node, err := r.read(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			r.observe(node)
		} else {
			r.log.Info("cannot read the Node again before a pod is rejected: what was last seen of it decides", "pods", len(uids), "error", err)
		}
		r.mu.Lock()
		for _, uid := range uids {
			r.readAt[uid] = time.Now()
		}
		r.mu.Unlock()
		r.retryAdmission()
	}
}
