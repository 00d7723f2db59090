package podsapi

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"podd/internal/pod"
)

// stallTimeout is how long a watcher may leave an event untaken.
const stallTimeout = time.Minute

// WatchPods sends every pod, then INITIAL_SYNC_COMPLETE, then changes. It ends when the client
// ends it or stops reading, or when podd stops.
func (s *Server) WatchPods(_ *api.WatchPodsRequest, stream grpc.ServerStreamingServer[api.WatchPodsEvent]) error {
	if err := s.checkReady(); err != nil {
		return err
	}
	select {
	case s.watchers <- struct{}{}:
		defer func() { <-s.watchers }()
	default:
		return grpcstatus.Errorf(codes.ResourceExhausted, "%d clients already watch pods, and podd serves no more: end one of the watches", maxWatchers)
	}
	w := &watcher{s: s, stream: stream, sent: map[pod.UID]*v1.Pod{}}
	return w.run(stream.Context())
}

// watcher is one watch. It belongs to one goroutine.
type watcher struct {
	s      *Server
	stream grpc.ServerStreamingServer[api.WatchPodsEvent]
	// sent has the versions that the client has. Each version is an object of its own, so that
	// comparing pointers is enough.
	sent map[pod.UID]*v1.Pod
}

func (w *watcher) run(ctx context.Context) error {
	changes, stop := w.s.cfg.Pods.Changes()
	defer stop()
	if err := w.update(); err != nil {
		return err
	}
	if err := w.send(&api.WatchPodsEvent{Type: api.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-changes:
			if err := w.update(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// update sends what differs from what the client has.
func (w *watcher) update() error {
	all := w.s.cfg.Pods.Pods()
	if len(w.sent) > 0 { // first what is gone: a new pod may have the name of an old one
		if err := w.sendDeleted(all); err != nil {
			return err
		}
	}
	for _, p := range all {
		before := w.sent[p.UID]
		if before == p {
			continue
		}
		kind := api.EventType_MODIFIED
		if before == nil {
			kind = api.EventType_ADDED
		}
		if err := w.sendPod(kind, p); err != nil {
			return err
		}
		w.sent[p.UID] = p
	}
	return nil
}

// sendDeleted sends DELETED for pods that are gone, with name, namespace and UID only.
func (w *watcher) sendDeleted(all []*v1.Pod) error {
	here := make(map[pod.UID]bool, len(all))
	for _, p := range all {
		here[p.UID] = true
	}
	for uid, p := range w.sent {
		if here[uid] {
			continue
		}
		gone := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: uid}}
		if err := w.sendPod(api.EventType_DELETED, gone); err != nil {
			return err
		}
		delete(w.sent, uid)
	}
	return nil
}

func (w *watcher) sendPod(kind api.EventType, p *v1.Pod) error {
	encoded, err := encode(p)
	if err != nil {
		return err
	}
	return w.send(&api.WatchPodsEvent{Type: kind, Pod: encoded})
}

// send returns when the client, or the buffer of its connection, has taken the event.
func (w *watcher) send(e *api.WatchPodsEvent) error {
	taken := make(chan error, 1)
	// The goroutine ends with this watch, because that ends the stream's context.
	go func() { taken <- w.stream.Send(e) }()
	stalled := time.NewTimer(stallTimeout)
	defer stalled.Stop()
	select {
	case err := <-taken:
		return err
	case <-stalled.C:
		w.s.metrics.dropped.Inc()
		w.s.cfg.Log.Warn("ending a watch of the PodsAPI: the client does not read", "waited", stallTimeout)
		return grpcstatus.Errorf(codes.ResourceExhausted, "the client took no event for %s; watch again", stallTimeout)
	}
}
