package events

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// ContainerName is the name of the container that an event is about; empty for one
// about its whole pod.
func ContainerName(e *v1.Event) string {
	_, after, found := strings.Cut(e.InvolvedObject.FieldPath, "ontainers{")
	if !found {
		return ""
	}
	return strings.TrimSuffix(after, "}")
}

// Causes returns, by container, what the API's status has no field for: the output of the
// probe or hook that caused a container to be stopped, and of the probe that keeps a
// running one from being ready. A container that ended for a reason of its own has none.
// Forgotten or held back events contribute nothing.
func (r *Recorder) Causes(p *v1.Pod) map[string]string {
	return causes(p, r.List(Filter{UID: p.UID}))
}

// causes are the Causes by a pod's events, oldest first.
func causes(p *v1.Pod, events []*v1.Event) map[string]string {
	var found map[string]string
	for _, cs := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if cause := (containerEvents{cs.Name, events}).cause(&cs); cause != "" {
			if found == nil {
				found = map[string]string{}
			}
			found[cs.Name] = cause
		}
	}
	return found
}

// containerEvents is what happened to a container, among the events of its pod.
type containerEvents struct {
	container string
	events    []*v1.Event
}

func (s containerEvents) cause(cs *v1.ContainerStatus) string {
	if r := cs.State.Running; r != nil {
		if cs.Ready {
			return ""
		}
		return s.lastMessage(r.StartedAt, metav1.Time{}, "Unhealthy", "Readiness probe", "Startup probe")
	}
	end := cs.State.Terminated
	if end == nil && cs.State.Waiting != nil {
		end = cs.LastTerminationState.Terminated
	}
	if end == nil || end.Reason == pod.ReasonOOMKilled {
		return ""
	}
	if said := s.lastMessage(end.StartedAt, end.FinishedAt, "FailedPostStartHook", ""); said != "" {
		return said
	}
	for _, probe := range []string{"Liveness", "Startup"} {
		killed := s.container + " failed " + strings.ToLower(probe) + " probe"
		if s.lastMessage(end.StartedAt, end.FinishedAt, "Killing", "Container "+killed, "Init container "+killed) != "" {
			return cmp.Or(s.lastMessage(end.StartedAt, end.FinishedAt, "Unhealthy", probe+" probe"), probe+" probe failed")
		}
	}
	return ""
}

// lastMessage is the message of the last event with the reason and one of the beginnings
// between the times, which are whole seconds in an event; a zero until is now.
func (s containerEvents) lastMessage(since, until metav1.Time, reason string, beginnings ...string) string {
	for _, e := range slices.Backward(s.events) {
		at := e.LastTimestamp.Unix()
		if e.Reason != reason || ContainerName(e) != s.container ||
			at < since.Unix() || !until.IsZero() && at > until.Unix() {
			continue
		}
		if slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(e.Message, b) }) {
			return e.Message
		}
	}
	return ""
}
