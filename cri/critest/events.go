package critest

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/critest/state"
)

// maxQueue is the number of events that wait for a listener, as in containerd.
const maxQueue = 1000

type stream struct {
	events chan *runtimeapi.ContainerEventResponse
	drop   chan struct{}
}

// changed follows a change of the state: it writes the files that a process leaves, and
// sends the event.
func (s *Server) changed(ch state.Change[sandboxData, containerData]) {
	kind, told := map[state.Kind]runtimeapi.ContainerEventType{
		state.WasCreated: runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT,
		state.WasStarted: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		state.WasStopped: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
		state.WasDeleted: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
	}[ch.Kind]
	switch c := ch.Container; {
	case !told:
	case c == nil && ch.Kind == state.WasDeleted:
		s.emitLocked(kind, ch.Sandbox.ID, nil)
	case c == nil:
		s.emitLocked(kind, ch.Sandbox.ID, ch.Sandbox)
	default:
		switch ch.Kind {
		case state.WasStarted:
			s.writeLog(c)
		case state.WasStopped:
			s.writeMessage(c)
		}
		s.emitLocked(kind, c.ID, ch.Sandbox)
	}
}

// emitLocked sends an event to all listeners, or keeps it for the next one. b is nil for a
// removed sandbox, which has no status any more.
func (s *Server) emitLocked(t runtimeapi.ContainerEventType, id string, b *sandbox) {
	if s.loseEvents || s.grpc == nil {
		return
	}
	ev := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: t, CreatedAt: time.Now().UnixNano()}
	if b != nil {
		ev.PodSandboxStatus = sandboxStatus(b)
		for _, c := range s.rt.ContainersOf(b) {
			ev.ContainersStatuses = append(ev.ContainersStatuses, containerStatus(c))
		}
	}
	if len(s.streams) == 0 {
		if s.queue = append(s.queue, ev); len(s.queue) > maxQueue {
			s.queue = s.queue[1:]
		}
		return
	}
	for l := range s.streams {
		select {
		case l.events <- ev:
		default: // a listener that does not read loses events, as with containerd
		}
	}
}

// LoseEvents drops all events while it is set.
func (s *Server) LoseEvents(lose bool) {
	s.rt.Lock()
	defer s.rt.Unlock()
	s.loseEvents = lose
}

// DropStreams ends all event streams with an error; the Server goes on.
func (s *Server) DropStreams() {
	s.rt.Lock()
	defer s.rt.Unlock()
	for l := range s.streams {
		close(l.drop)
		delete(s.streams, l)
	}
}

// Listeners returns the number of open event streams.
func (s *Server) Listeners() int {
	s.rt.Lock()
	defer s.rt.Unlock()
	return len(s.streams)
}

// GetContainerEvents streams events until the caller leaves or the stream is dropped.
func (s *Server) GetContainerEvents(_ *runtimeapi.GetEventsRequest, out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) (err error) {
	call, fate := s.begin("GetContainerEvents", nil)
	defer func() { s.record.end(call, err) }()
	if s.noEvents {
		return status.Error(codes.Unimplemented, "unknown method GetContainerEvents")
	}
	if err := fate.Err(); err != nil {
		return err
	}
	l := &stream{events: make(chan *runtimeapi.ContainerEventResponse, maxQueue), drop: make(chan struct{})}
	s.rt.Lock()
	waiting := s.queue
	s.queue = nil
	s.streams[l] = struct{}{}
	s.rt.Unlock()
	defer func() {
		s.rt.Lock()
		defer s.rt.Unlock()
		delete(s.streams, l)
	}()
	for _, ev := range waiting {
		if err := out.Send(ev); err != nil {
			return err
		}
	}
	for {
		select {
		case ev := <-l.events:
			if err := out.Send(ev); err != nil {
				return err
			}
		case <-l.drop:
			return status.Error(codes.Unavailable, "the event stream was dropped")
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		}
	}
}
