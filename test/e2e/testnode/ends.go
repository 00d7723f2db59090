package testnode

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Ends hears from the runtime's event stream which containers have stopped and
// which sandboxes were removed, as an agent without a poll does.
type Ends struct {
	stopped, removed *arrivals

	cancel context.CancelFunc
	done   chan struct{}
}

// NewEnds listens until Close. What ended before is not seen.
func NewEnds(ctx context.Context, cri *CRI) (*Ends, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := cri.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("listen to the runtime's events: %w", err)
	}
	e := &Ends{stopped: newArrivals("ends of containers"), removed: newArrivals("removals of sandboxes"),
		cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		for {
			event, err := stream.Recv()
			if err != nil {
				err = fmt.Errorf("the runtime's event stream ended: %w", err)
				e.stopped.fail(err)
				e.removed.fail(err)
				return
			}
			switch now := time.Now(); event.ContainerEventType {
			case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
				e.stopped.note(event.ContainerId, now)
			case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
				e.removed.note(event.ContainerId, now)
			}
		}
	}()
	return e, nil
}

// Stopped blocks until all the containers have ended and returns when the last
// did; Removed does so for the removal of sandboxes.
func (e *Ends) Stopped(ctx context.Context, ids ...string) (time.Time, error) {
	return e.stopped.Wait(ctx, ids...)
}

func (e *Ends) Removed(ctx context.Context, ids ...string) (time.Time, error) {
	return e.removed.Wait(ctx, ids...)
}

// Close ends the listening.
func (e *Ends) Close() {
	e.cancel()
	<-e.done
}
