package cri

import (
	"context"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// Events reads the runtime's event stream and calls hint for each event with its pod and
// the time at which it happened. An event is a hint to sync the pod. It does not give the
// pod's state: it may be minutes old. The UID is empty if neither the event nor earlier
// observations of its sandbox identify the pod.
//
// It blocks until the stream is lost or ctx ends, and always returns an error:
// pod.ErrUnimplemented when the runtime has no such stream, and otherwise why
// it ended. hint is called from one goroutine and must not block.
func (c *Client) Events(ctx context.Context, hint func(uid pod.UID, at time.Time)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer c.roster.streamOpened()()
	stream, err := c.events.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return mapError("open the runtime's event stream", err)
	}
	for {
		ev, err := stream.Recv()
		if err != nil {
			return mapError("read the runtime's event stream", err)
		}
		c.metrics.events.WithLabelValues(eventType(ev.ContainerEventType)).Inc()
		hint(c.eventOwner(ev), time.Unix(0, ev.CreatedAt))
	}
}

// eventOwner returns the pod of an event, and records the event in the roster. The event of
// a removed sandbox has no status any more: then earlier observations and events of the
// sandbox identify the pod.
func (c *Client) eventOwner(ev *runtimeapi.ContainerEventResponse) pod.UID {
	uid := pod.UID(ev.PodSandboxStatus.GetMetadata().GetUid())
	for _, k := range ev.ContainersStatuses {
		if uid == "" {
			uid = pod.UID(k.Labels[spec.LabelPodUID])
		}
	}
	return c.roster.event(uid, ev.ContainerId, ev.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

func eventType(t runtimeapi.ContainerEventType) string {
	name, _ := strings.CutSuffix(strings.TrimPrefix(t.String(), "CONTAINER_"), "_EVENT")
	switch name = strings.ToLower(name); name {
	case "created", "started", "stopped", "deleted":
		return name
	default:
		return "other"
	}
}
