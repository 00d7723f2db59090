package events

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCausesAreWhatProbesAndHooksSaidInTheContainersLife(t *testing.T) {
	at := func(s int) metav1.Time { return metav1.Unix(1000+int64(s), int64(300*time.Millisecond)) }
	event := func(s int, path, reason, message string) *v1.Event {
		return &v1.Event{InvolvedObject: v1.ObjectReference{FieldPath: path}, Reason: reason, Message: message,
			LastTimestamp: metav1.Unix(1000+int64(s), 0)}
	}
	const main = "spec.containers{main}"
	happened := []*v1.Event{
		event(12, main, "Unhealthy", "Liveness probe failed: once"),
		event(14, main, "Unhealthy", "Readiness probe failed: not yet"),
		event(20, main, "Unhealthy", "Liveness probe failed: is sick"),
		event(20, main, "Killing", "Container main failed liveness probe, will be restarted"),
		event(20, "spec.initContainers{main}", "Killing", "Init container main failed startup probe"),
		event(21, "spec.containers{other}", "FailedPostStartHook", "PostStartHook failed"),
		event(40, main, "FailedPostStartHook", "PostStartHook failed"),
		event(40, main, "Killing", "FailedPostStartHook"),
		event(51, main, "Killing", "Container main failed startup probe, will be restarted"),
		event(71, main, "Unhealthy", "Readiness probe failed: go away"),
		event(72, main, "ProbeWarning", "Readiness probe warning: go away"),
	}
	running := func(since int) v1.ContainerState {
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at(since)}}
	}
	ended := func(from, to int, reason string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{StartedAt: at(from), FinishedAt: at(to), Reason: reason, ExitCode: 137}}
	}
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	for name, c := range map[string]struct {
		status v1.ContainerStatus
		want   string
	}{
		"not ready":                        {v1.ContainerStatus{State: running(60)}, "Readiness probe failed: go away"},
		"ready":                            {v1.ContainerStatus{State: running(60), Ready: true}, ""},
		"not ready, and nothing said yet":  {v1.ContainerStatus{State: running(80)}, ""},
		"stopped for its liveness":         {v1.ContainerStatus{State: ended(10, 20, "Error")}, "Liveness probe failed: is sick"},
		"waits after that":                 {v1.ContainerStatus{State: waiting, LastTerminationState: ended(10, 20, "Error")}, "Liveness probe failed: is sick"},
		"ended by itself, sick":            {v1.ContainerStatus{State: ended(10, 13, "Error")}, ""},
		"out of memory":                    {v1.ContainerStatus{State: ended(10, 20, "OOMKilled")}, ""},
		"stopped for its hook":             {v1.ContainerStatus{State: waiting, LastTerminationState: ended(39, 41, "Error")}, "PostStartHook failed"},
		"what the probe said is forgotten": {v1.ContainerStatus{State: ended(50, 51, "Error")}, "Startup probe failed"},
		"never ran":                        {v1.ContainerStatus{State: waiting}, ""},
	} {
		c.status.Name = "main"
		p := &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{c.status}}}
		if got := causes(p, happened)["main"]; got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestContainerOfAnEvent(t *testing.T) {
	for path, want := range map[string]string{"": "", "spec.containers{a-1}": "a-1", "spec.initContainers{b}": "b"} {
		if got := ContainerName(&v1.Event{InvolvedObject: v1.ObjectReference{FieldPath: path}}); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}
