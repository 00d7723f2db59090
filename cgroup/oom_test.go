package cgroup

import (
	"errors"
	"log/slog"
	"testing"

	"podd/internal/pod"
)

func TestAKillThatTheRuntimeMissedIsOOMKilled(t *testing.T) {
	kills, fails := int64(0), error(nil)
	w := NewOOMWitness(func(pod.UID) (int64, error) { return kills, fails }, slog.New(slog.DiscardHandler))
	dead := func(id string, code int32, reason string) pod.Container {
		return pod.Container{ID: id, State: pod.ContainerExited, ExitCode: code, Reason: reason}
	}
	look := func(what string, all []pod.Container, want ...string) {
		t.Helper()
		seen := pod.Observed{Containers: append([]pod.Container(nil), all...)}
		w.Attribute("u", &seen)
		for i, c := range seen.Containers {
			if c.Reason != want[i] {
				t.Errorf("%s: %s: got %q, want %q", what, c.ID, c.Reason, want[i])
			}
		}
	}
	a, b, c := dead("a", 137, "Error"), dead("b", 137, "Error"), dead("c", 137, "OOMKilled")
	look("nothing died", []pod.Container{{ID: "a", State: pod.ContainerRunning}}, "")
	look("killed by somebody", []pod.Container{a}, "Error")
	kills = 2
	look("another by the kernel", []pod.Container{b, a}, "OOMKilled", "Error")
	look("again", []pod.Container{b, a}, "OOMKilled", "Error")
	kills = 4
	look("one that the runtime saw", []pod.Container{c, b}, "OOMKilled", "OOMKilled")
	look("that explains the kills", []pod.Container{dead("d", 137, "Error"), c}, "Error", "OOMKilled")
	kills = 6
	look("another code", []pod.Container{dead("e", 1, "Error")}, "Error")
	kills, fails = 9, errors.New("no such file")
	look("no count to be had", []pod.Container{dead("f", 137, "Error")}, "Error")
	look("the pod is gone", nil)
	if len(w.pods) != 0 {
		t.Errorf("of a pod that is gone something is kept: %v", w.pods)
	}
	// A podd that was started again knows of no kill yet.
	kills, fails = 3, nil
	look("after a restart", []pod.Container{dead("b", 137, "Error")}, "OOMKilled")
	look("after a restart", []pod.Container{dead("g", 137, "Error"), b}, "Error", "OOMKilled")
	// The pod's group was made anew, and counts from nothing.
	kills = 0
	look("a new group", []pod.Container{dead("h", 137, "Error")}, "Error")
	kills = 1
	look("a kill in it", []pod.Container{dead("i", 137, "Error")}, "OOMKilled")
}
